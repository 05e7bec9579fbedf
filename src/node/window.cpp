#include "node/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mccl/error.h"

namespace mccl::node {
namespace {

/// Copies like PeerMemory::read(), but also to memory that only this process itself can write to,
/// as with a handler of SIGSEGV. Returns an errno.
int copy_in_pieces(const PeerMemory& process, std::uint64_t address, std::span<std::byte> to) {
  std::array<std::byte, 4096> piece;
  while (!to.empty()) {
    const std::span part = std::span(piece).first(std::min(piece.size(), to.size()));
    if (const int error = process.read(address, part)) return error;
    std::memcpy(to.data(), part.data(), part.size());
    address += part.size();
    to = to.subspan(part.size());
  }
  return 0;
}

[[noreturn]] void throw_withdrawn(int rank) {
  throw PeerError(fmt::format("the call of rank {} failed while its memory was read", rank));
}

}  // namespace

BlockRow::BlockRow(std::size_t bytes) : last_use_(bytes / kBlockBytes, 0) {}

BlockRow::Place BlockRow::take(std::size_t bytes, std::uint64_t call) {
  const std::size_t blocks = std::bit_ceil((bytes + kBlockBytes - 1) / kBlockBytes);
  std::size_t first = (next_ + blocks - 1) / blocks * blocks;
  if (first + blocks > last_use_.size()) first = 0;
  next_ = first + blocks;
  const auto begin = last_use_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(blocks);
  const Place place{first * kBlockBytes, *std::max_element(begin, end)};
  std::fill(begin, end, call);
  return place;
}

Window::Window(int group_size, Range own, std::vector<Neighbour> neighbours, std::size_t call_bytes,
               std::size_t line)
    : Window(group_size, own.memory(), std::move(neighbours), call_bytes, line) {
  own_ = std::move(own);
}

Window::Window(int group_size, std::span<std::byte> own, std::vector<Neighbour> neighbours,
               std::size_t call_bytes, std::size_t line)
    : call_bytes_(call_bytes),
      line_(line),
      neighbours_(std::move(neighbours)),
      own_view_(view_of(own)),
      views_(static_cast<std::size_t>(group_size)),
      row_(2 * call_bytes) {
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.memory.size() < window_bytes(call_bytes, line)) {
      throw CorruptionError(
          fmt::format("shared memory: rank {} shares {} bytes for collectives, but the ranks "
                      "agreed on {} bytes",
                      neighbour.rank, neighbour.memory.size(), window_bytes(call_bytes, line)));
    }
    View& view = views_[static_cast<std::size_t>(neighbour.rank)];
    view = view_of(neighbour.memory);
    view.heap = neighbour.heap;
    view.heap_begin = neighbour.heap_begin;
    view.process = neighbour.process;
  }
}

Window::View Window::view_of(std::span<std::byte> memory) const {
  return {WindowFront(memory.data(), line_), memory.data() + WindowFront::bytes(line_)};
}

std::byte* Window::data_of(const View& view) const {
  return in_head_ ? view.front.head(call_).smallest : view.row + offset_;
}

void Window::begin(std::uint32_t arrivals, std::size_t published, std::uint64_t fingerprint,
                   const Places& places) {
  ++call_;
  arrivals_ = arrivals;
  arrived_ = 0;
  open_ = false;
  stray_ = -1;
  first_arrivals_[call_ % kDepth] = base_ + 1;
  awaited_ = call_ < kDepth ? 0 : call_ - kDepth + 1;
  in_head_ = published <= CallHead::kInlineBytes;
  places_ = in_head_ ? Places{} : places;
  if (!in_head_) {
    const BlockRow::Place place = row_.take(published, call_);
    offset_ = place.offset;
    if (place.last_use != 0) awaited_ = std::max(awaited_, place.last_use + 1);
  }
  // Multiplication by an odd number is reversible. Fingerprints that differ therefore still differ
  // after any number of equal calls.
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
  own_view_.front.head(call_).fingerprint = fingerprint_;
  trace_of(own_view_, call_).fingerprint = fingerprint_;
  for (std::size_t memory = 0; memory < places_.size() && !in_head_; ++memory)
    place_in(own_view_.front.head(call_), memory).store(places_[memory], std::memory_order_relaxed);
  open_ = true;
  return true;
}

void Window::end() { base_ += arrivals_; }

void Window::arrive() {
  own_view_.front.head(call_).arrivals.store(base_ + ++arrived_, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& neighbour : neighbours_) neighbour.bell.ring_after_fence();
}

const std::byte* Window::published_by(int rank) const {
  return data_of(views_[static_cast<std::size_t>(rank)]);
}

void Window::require_kept(int rank, std::size_t memory) const {
  if (in_head_) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (place_of(rank, memory) == kWithdrawn) throw_withdrawn(rank);
}

void Window::withdraw() noexcept {
  if (!open_) return;
  for (std::size_t memory = 0; memory < places_.size(); ++memory) {
    if (places_[memory] == 0) continue;
    place_in(own_view_.front.head(call_), memory).store(kWithdrawn, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

const std::byte* Window::memory_of(int rank, std::size_t memory, std::size_t begin,
                                   std::size_t bytes) const {
  if (in_head_) return nullptr;
  const std::size_t place = place_of(rank, memory);
  if (place == 0) return nullptr;
  if (place == kWithdrawn) throw_withdrawn(rank);
  const View& view = views_[static_cast<std::size_t>(rank)];
  const std::size_t offset = place - view.heap_begin;  // wraps around if it precedes the heap
  const std::size_t size = view.heap ? view.heap->size() : 0;
  if (offset > size || begin > size - offset || bytes > size - offset - begin) {
    throw CorruptionError(
        fmt::format("shared memory: rank {} says that its data lie at {} of its memory, where this "
                    "rank reads {} bytes from {} on; that is outside of the rank's heap, of {} "
                    "bytes at {}",
                    rank, place, bytes, begin, size, view.heap_begin));
  }
  if (!view.heap->open(offset + begin, bytes)) fail_to("read a peer's heap");
  return view.heap->data() + offset + begin;
}

bool Window::copy_from_process(int rank, std::size_t memory, std::size_t begin,
                               std::span<std::byte> to) const {
  if (in_head_) return false;
  const std::uint64_t place = place_of(rank, memory);
  if ((place & kInProcess) == 0) return false;
  if (place == kWithdrawn) throw_withdrawn(rank);
  const PeerMemory& process = views_[static_cast<std::size_t>(rank)].process;
  const std::uint64_t address = (place ^ kInProcess) + begin;
  int error = process.read(address, to);
  if (error == EFAULT) error = copy_in_pieces(process, address, to);
  if (error == 0) return true;
  require_kept(rank, memory);
  throw PeerError(
      fmt::format("cannot copy {} bytes from the memory of the process of rank {}: {}; set "
                  "MCCL_CROSS_MEMORY=off if a rank changes its user or handles SIGSEGV",
                  to.size(), rank, std::strerror(error)));
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

/// Compares the calls after `compared`, all of which are still in the neighbour's trail: the
/// neighbour is at most kDepth calls ahead of this rank's previous call, and this rank is at most
/// kDepth calls ahead of `compared`.
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

}  // namespace mccl::node
