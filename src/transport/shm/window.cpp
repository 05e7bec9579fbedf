#include "transport/shm/window.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "mccl/error.h"

namespace mccl::transport::shm {

Window::Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t bank_bytes)
    : Window(group_size, own.memory(), std::move(neighbours), bank_bytes) {
  own_ = std::move(own);
}

Window::Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
               std::size_t bank_bytes)
    : bank_bytes_(bank_bytes),
      neighbours_(std::move(neighbours)),
      own_banks_(view_of(own)),
      views_(static_cast<std::size_t>(group_size)),
      bank_(1) {
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.memory.size() < window_bytes(bank_bytes)) {
      throw CorruptionError(
          fmt::format("shared memory: rank {} shares {} bytes as its window, where {} were agreed",
                      neighbour.rank, neighbour.memory.size(), window_bytes(bank_bytes)));
    }
    views_[static_cast<std::size_t>(neighbour.rank)] = view_of(neighbour.memory);
  }
}

Window::View Window::view_of(std::span<std::byte> memory) const {
  return {{memory.data(), memory.data() + sizeof(BankHead) + bank_bytes_}};
}

void Window::begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint,
                   std::span<const std::byte, kLabelBytes> label) {
  bank_ ^= 1;
  arrivals_ = arrivals;
  arrived_ = 0;
  open_ = false;
  stray_ = -1;
  is_inline_ = published <= BankHead::kInlineBytes;
  fingerprint_before_ = fingerprint_;
  fingerprint_ = fingerprint;
  std::memcpy(label_, label.data(), kLabelBytes);
  BankHead& head = own_head(bank_);
  own_data_ = is_inline_ ? head.small : own_banks_.banks[bank_] + sizeof(BankHead);
}

int Window::late() const {
  for (const Neighbour& neighbour : neighbours_) {
    // Where it is now, in this call or the one before: its counts in both banks grow together.
    const auto count = [&](std::size_t bank) {
      return head_of(neighbour.rank, bank).arrivals.load(std::memory_order_acquire);
    };
    if (count(bank_ ^ 1) < must_have_ && count(bank_) < must_have_) return neighbour.rank;
  }
  return -1;
}

bool Window::open() {
  if (open_) return true;
  if (late() >= 0) return false;
  stray_ = find_stray();
  BankHead& head = own_head(bank_);
  head.fingerprint = fingerprint_;
  std::memcpy(head.label, label_, kLabelBytes);
  open_ = true;
  return true;
}

void Window::end() {
  must_have_ = base_ + 1;
  base_ += arrivals_;
}

void Window::arrive() {
  own_head(bank_).arrivals.store(base_ + ++arrived_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& neighbour : neighbours_) neighbour.bell.ring_after_fence();
}

const std::byte* Window::published_by(int rank) const {
  const BankHead& head = head_of(rank);
  return is_inline_ ? head.small
                    : views_[static_cast<std::size_t>(rank)].banks[bank_] + sizeof(BankHead);
}

std::span<const std::byte, kLabelBytes> Window::label_of(int rank) const {
  return std::span<const std::byte, kLabelBytes>(head_of(rank).label, kLabelBytes);
}

int Window::find_stray() const {
  if (must_have_ == 0) return -1;  // there was no call before
  for (const Neighbour& neighbour : neighbours_) {
    // Its bank of that call stays as it is until this rank has arrived in the present one.
    if (head_of(neighbour.rank, bank_ ^ 1).fingerprint != fingerprint_before_)
      return neighbour.rank;
  }
  return -1;
}

std::span<const std::byte, kLabelBytes> Window::label_before(int rank) const {
  return std::span<const std::byte, kLabelBytes>(head_of(rank, bank_ ^ 1).label, kLabelBytes);
}

}  // namespace mccl::transport::shm
