#include "device/depot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/machine.h"

namespace mccl::device {
namespace {

constexpr std::size_t kLeastBlock = 4096;

}  // namespace

Block& Block::operator=(Block&& other) noexcept {
  std::swap(depot_, other.depot_);
  std::swap(data_, other.data_);
  std::swap(kind_, other.kind_);
  return *this;
}

Block::~Block() {
  if (data_) depot_->take_back(data_, kind_);
}

std::unique_ptr<Passage> Accelerator::make_passage() { return nullptr; }

Depot::Depot(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {}

Depot::~Depot() {
  passages_.clear();
  for (const auto& blocks : free_) {
    for (std::byte* const block : blocks) accelerator_->free_pinned(block);
  }
  for (std::byte* const page : pages_of_words_) accelerator_->free_pinned(page);
}

Block Depot::block(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kLeastBlock));
  const auto kind = static_cast<std::size_t>(std::countr_zero(size));
  {
    const std::lock_guard lock(mutex_);
    if (!free_.at(kind).empty()) {
      std::byte* const data = free_[kind].back();
      free_[kind].pop_back();
      return {shared_from_this(), data, kind};
    }
  }
  return {shared_from_this(), accelerator_->allocate_pinned(size), kind};
}

void Depot::take_back(std::byte* data, std::size_t kind) {
  const std::lock_guard lock(mutex_);
  free_[kind].push_back(data);
}

std::unique_ptr<Passage> Depot::passage() {
  {
    const std::lock_guard lock(mutex_);
    if (!passages_.empty()) {
      std::unique_ptr<Passage> passage = std::move(passages_.back());
      passages_.pop_back();
      return passage;
    }
  }
  if (std::unique_ptr<Passage> own = accelerator_->make_passage()) return own;
  Word* words = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (words_left_ == 0) {
      pages_of_words_.push_back(accelerator_->allocate_pinned(page_bytes()));
      std::memset(pages_of_words_.back(), 0, page_bytes());
      words_left_ = page_bytes() / line_bytes();
    }
    words = reinterpret_cast<Word*>(pages_of_words_.back() + --words_left_ * line_bytes());
  }
  return std::make_unique<QueuePassage>(accelerator_->make_queue(), words);
}

void Depot::take_back(std::unique_ptr<Passage> passage) {
  const std::lock_guard lock(mutex_);
  passages_.push_back(std::move(passage));
}

}  // namespace mccl::device
