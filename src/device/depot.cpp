#include "device/depot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace mccl::device {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
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

void Passage::begin(const Trip& trip) {
  input_bytes_ = trip.input_bytes;
  output_bytes_ = trip.output_bytes;
  const std::size_t longest = std::max<std::size_t>({input_bytes_, output_bytes_, 1});
  piece_ = trip.piece == 0 ? longest : trip.piece;
  before_ = number_;
  number_ += static_cast<Word>((longest + piece_ - 1) / piece_);
  queue_->follow(trip.stream);
  for (std::size_t at = 0; at < input_bytes_; at += piece_) {
    const std::size_t bytes = std::min(piece_, input_bytes_ - at);
    queue_->copy_to_host(trip.staged_input + at, static_cast<const std::byte*>(trip.from) + at,
                         bytes);
    queue_->write(&words_[kArrived], word_at(at + bytes, input_bytes_));
  }
  for (std::size_t at = 0; at < output_bytes_; at += piece_) {
    const std::size_t bytes = std::min(piece_, output_bytes_ - at);
    queue_->await(&words_[kReleased], word_at(at + bytes, output_bytes_));
    queue_->copy_to_device(static_cast<std::byte*>(trip.to) + at, trip.staged_output + at, bytes);
  }
  queue_->write(&words_[kEnded], number_);
  queue_->mark();
}

/// What a word says when the first `bytes` of `whole` are through.
Word Passage::word_at(std::size_t bytes, std::size_t whole) const {
  return bytes >= whole ? number_ : before_ + static_cast<Word>(bytes / piece_);
}

std::size_t Passage::arrived() const {
  const Word word = __atomic_load_n(&words_[kArrived], __ATOMIC_ACQUIRE);
  const auto past = [word](Word value) { return static_cast<std::int32_t>(word - value); };
  if (input_bytes_ == 0 || past(number_) >= 0) return input_bytes_;
  return past(before_) <= 0 ? 0 : static_cast<std::size_t>(past(before_)) * piece_;
}

void Passage::release(std::size_t bytes) {
  const Word word = word_at(bytes, output_bytes_);
  if (!reached(&words_[kReleased], word)) {
    __atomic_store_n(&words_[kReleased], word, __ATOMIC_RELEASE);
  }
}

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
  Word* words = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!passages_.empty()) {
      std::unique_ptr<Passage> passage = std::move(passages_.back());
      passages_.pop_back();
      return passage;
    }
    if (words_left_ == 0) {
      pages_of_words_.push_back(accelerator_->allocate_pinned(kPage));
      std::memset(pages_of_words_.back(), 0, kPage);
      words_left_ = kPage / kLine;
    }
    words = reinterpret_cast<Word*>(pages_of_words_.back() + --words_left_ * kLine);
  }
  return std::make_unique<Passage>(accelerator_->make_queue(), words);
}

void Depot::take_back(std::unique_ptr<Passage> passage) {
  const std::lock_guard lock(mutex_);
  passages_.push_back(std::move(passage));
}

}  // namespace mccl::device
