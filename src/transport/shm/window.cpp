#include "transport/shm/window.h"

#include <fmt/format.h>

#include <algorithm>
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
      own_view_(view_of(own)),
      views_(static_cast<std::size_t>(group_size)) {
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
  return {reinterpret_cast<WindowFront*>(memory.data()), memory.data() + sizeof(WindowFront)};
}

std::byte* Window::data_of(const View& view) const {
  switch (place_) {
    case Place::head:
      return view.front->heads[call_ % kDepth].smallest;
    case Place::small:
      return view.front->small[call_ % kDepth];
    case Place::bank:
      return view.banks + bank_ * bank_bytes_;
  }
  return nullptr;
}

void Window::begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint) {
  ++call_;
  arrivals_ = arrivals;
  arrived_ = 0;
  open_ = false;
  stray_ = -1;
  first_arrivals_[call_ % kDepth] = base_ + 1;
  awaited_ = call_ < kDepth ? 0 : call_ - kDepth + 1;
  place_ = published <= CallHead::kInlineBytes     ? Place::head
           : published <= WindowFront::kSmallBytes ? Place::small
                                                   : Place::bank;
  if (place_ == Place::bank) {
    bank_ ^= 1;
    if (last_use_[bank_] != 0) awaited_ = std::max(awaited_, last_use_[bank_] + 1);
    last_use_[bank_] = call_;
  }
  // An odd factor: a difference never vanishes from what follows.
  fingerprint_ = fingerprint_ * 0x9e3779b97f4a7c15ULL + fingerprint;
  own_data_ = data_of(own_view_);
}

int Window::late() const {
  const std::uint64_t count = first_arrivals_[awaited_ % kDepth];
  for (const Neighbour& neighbour : neighbours_) {
    if (views_[static_cast<std::size_t>(neighbour.rank)].compared >= awaited_) continue;
    const CallHead& head = head_of(neighbour.rank, awaited_);
    if (head.arrivals.load(std::memory_order_acquire) < count) return neighbour.rank;
  }
  return -1;
}

bool Window::open() {
  if (open_) return true;
  if (late() >= 0) return false;
  stray_ = find_stray();
  own_view_.front->heads[call_ % kDepth].fingerprint = fingerprint_;
  trace_of(own_view_, call_).fingerprint = fingerprint_;
  open_ = true;
  return true;
}

void Window::end() { base_ += arrivals_; }

void Window::arrive() {
  own_view_.front->heads[call_ % kDepth].arrivals.store(base_ + ++arrived_,
                                                        std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& neighbour : neighbours_) neighbour.bell.ring_after_fence();
}

const std::byte* Window::published_by(int rank) const {
  return data_of(views_[static_cast<std::size_t>(rank)]);
}

int Window::find_stray() {
  for (const Neighbour& neighbour : neighbours_) {
    View& view = views_[static_cast<std::size_t>(neighbour.rank)];
    if (view.compared >= awaited_) continue;
    const CallTrace& ours = trace_of(own_view_, awaited_);
    if (trace_of(view, awaited_).fingerprint != ours.fingerprint) return neighbour.rank;
    view.compared = awaited_;
  }
  return -1;
}

/// The neighbour's trail is whole from the call after `compared` on: it cannot have gone further
/// than kDepth calls beyond this one's predecessor, nor this rank than that beyond `compared`.
Window::Divergence Window::divergence_of(int rank) const {
  const View& view = views_[static_cast<std::size_t>(rank)];
  const auto labels = [](const CallTrace& theirs, const std::byte* ours, bool is_over) {
    return Divergence{std::span<const std::byte, kLabelBytes>(theirs.label, kLabelBytes),
                      std::span<const std::byte, kLabelBytes>(ours, kLabelBytes), is_over};
  };
  for (std::uint64_t call = view.compared + 1; call < call_; ++call) {
    const CallTrace& theirs = trace_of(view, call);
    const CallTrace& ours = trace_of(own_view_, call);
    if (theirs.fingerprint != ours.fingerprint) return labels(theirs, ours.label, true);
  }
  return labels(trace_of(view, call_), trace_of(own_view_, call_).label, false);
}

}  // namespace mccl::transport::shm
