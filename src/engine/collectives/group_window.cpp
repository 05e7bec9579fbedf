#include "engine/collectives/group_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/calls/call.h"
#include "mccl/error.h"
#include "node/arena.h"

namespace mccl::engine {
namespace {

using node::thrifty;
using node::Window;

constexpr std::size_t kLeastCallBytes = std::size_t{16} << 10;
constexpr std::size_t kFewRanks = 64;
/// Maximum total size of the heaps that a rank maps: a quarter of the address space that processes
/// have on x86-64 and AArch64.
constexpr std::size_t kMostHeapBytes = std::size_t{1} << 45;

using OfferOnWire = std::array<std::uint64_t, 4>;
constexpr std::uint64_t kReadsHeaps = 1, kReadsProcesses = 2;  // flags in the last number

}  // namespace

transport::Blob encode(const WindowOffer& offer) {
  const OfferOnWire on_wire = {
      offer.call_bytes, offer.place.offset, offer.place.bytes,
      (offer.reads_heaps ? kReadsHeaps : 0) | (offer.reads_processes ? kReadsProcesses : 0)};
  transport::Blob blob(sizeof on_wire);
  std::memcpy(blob.data(), on_wire.data(), blob.size());
  return blob;
}

WindowOffer decode_window_offer(std::span<const std::byte> bytes) {
  OfferOnWire on_wire;
  if (bytes.size() != sizeof on_wire) {
    throw CorruptionError(
        fmt::format("a message that offers a window in shared memory has an invalid size, {} bytes",
                    bytes.size()));
  }
  std::memcpy(on_wire.data(), bytes.data(), bytes.size());
  if (on_wire[3] > (kReadsHeaps | kReadsProcesses)) {
    throw CorruptionError(fmt::format(
        "a message that offers a window in shared memory has an invalid flag, {}", on_wire[3]));
  }
  return {on_wire[0],
          {on_wire[1], on_wire[2]},
          (on_wire[3] & kReadsHeaps) != 0,
          (on_wire[3] & kReadsProcesses) != 0};
}

GroupWindow::GroupWindow(GroupRank rank, ByRank<GroupRank, int> nodes)
    : rank_(rank),
      nodes_(std::move(nodes)),
      offers_(nodes_.size()),
      missing_(nodes_.size()),
      settled_(nodes_.empty()) {
  for (GroupRank other(0); other < nodes_.end_rank(); ++other) {
    if (other != rank && nodes_[other] == nodes_[rank]) neighbours_.push_back(other);
  }
}

/// Every rank of a node maps the windows of all other ranks of the node, so windows are smaller if
/// the node has many ranks.
std::size_t GroupWindow::usual() const {
  const std::size_t ranks = neighbours_.size() + 1;
  return ranks <= kFewRanks ? kUsualCallBytes : kUsualCallBytes / std::bit_ceil(ranks / kFewRanks);
}

/// Maps the heaps of all neighbours, which costs address space. Returns false if this process has
/// too little of it. Then maps nothing, unless the system itself refuses.
bool GroupWindow::map_heaps(const Find& neighbour) const {
  std::size_t all = 0;
  for (const GroupRank other : neighbours_) {
    const std::size_t bytes = neighbour(other).arena.heap_bytes();
    if (bytes > kMostHeapBytes - all) return false;
    all += bytes;
  }
  if (all > 0 && node::has_limited_address_space()) return false;
  try {
    for (const GroupRank other : neighbours_) neighbour(other).arena.heap();
  } catch (const Error&) {
    return false;
  }
  return true;
}

WindowOffer GroupWindow::offer(const std::shared_ptr<node::Arena>& arena, const Find& neighbour,
                               bool reads_processes) {
  const auto is_readable = [&](GroupRank other) {
    return neighbour(other).memory().obstacle().empty();
  };
  WindowOffer mine;
  mine.reads_heaps = map_heaps(neighbour);
  mine.reads_processes = reads_processes && std::ranges::all_of(neighbours_, is_readable);
  if (arena) heap_ = {arena, arena->heap()};
  if (!neighbours_.empty()) mine.call_bytes = thrifty(usual(), kLeastCallBytes, *arena);
  while (!neighbours_.empty() && !own_ && mine.call_bytes >= kLeastCallBytes) {
    own_ = arena->allocate(node::window_bytes(mine.call_bytes),
                           static_cast<std::uint32_t>(neighbours_.size()),
                           node::WindowFront::bytes(line_bytes()));
    if (!own_) mine.call_bytes /= 4;
  }
  // A rank without neighbours needs no memory. It offers the largest size, so that its offer does
  // not limit the size that the other ranks use.
  if (neighbours_.empty()) mine.call_bytes = kUsualCallBytes;
  if (!neighbours_.empty() && !own_) mine.call_bytes = 0;
  if (own_) mine.place = own_.place();
  take(rank_, mine);
  return mine;
}

bool GroupWindow::take(GroupRank member, const WindowOffer& offer) {
  if (nodes_.empty() || released_) return false;
  std::optional<WindowOffer>& known = offers_[member];
  if (known) return false;
  known = offer;
  --missing_;
  return true;
}

std::vector<GroupRank> GroupWindow::missing_members() const {
  std::vector<GroupRank> missing;
  for (GroupRank member(0); member < offers_.end_rank(); ++member) {
    if (!offers_[member]) missing.push_back(member);
  }
  return missing;
}

void GroupWindow::settle(const Find& neighbour) {
  settled_ = true;
  std::size_t least = kUsualCallBytes;
  for (const std::optional<WindowOffer>& offer : offers_) {
    least = std::min<std::size_t>(least, offer->call_bytes);
  }
  call_bytes_ = std::bit_floor(least);
  if (call_bytes_ < kLeastCallBytes) call_bytes_ = 0;
  if (neighbours_.empty() || call_bytes_ == 0) return;
  const auto all_on_this_node = [this](bool WindowOffer::*flag) {
    return (*offers_[rank_]).*flag &&
           std::ranges::all_of(neighbours_, [&](GroupRank r) { return (*offers_[r]).*flag; });
  };
  const bool reads_heaps = all_on_this_node(&WindowOffer::reads_heaps);
  reads_processes_ = all_on_this_node(&WindowOffer::reads_processes);
  if (!reads_heaps) heap_.reset();
  std::vector<Window::Neighbour> mapped;
  for (const GroupRank other : neighbours_) {
    const node::Neighbour& found = neighbour(other);
    node::RangePlace& place = offers_[other]->place;
    mapped.push_back({other.number(), found.arena.map(place), found.bell()});
    if (reads_heaps) {
      mapped.back().heap = &found.arena.heap();
      mapped.back().heap_begin = found.arena.heap_begin();
    }
    if (reads_processes_) mapped.back().process = found.memory();
    place = {};  // the mapping releases the range now; let_go() must not release it again
  }
  window_.emplace(static_cast<int>(nodes_.size()), std::move(own_), std::move(mapped), call_bytes_);
}

void GroupWindow::release(const LetGo& let_go) noexcept {
  window_.reset();
  for (const GroupRank other : neighbours_) {
    std::optional<WindowOffer>& offer = offers_[other];
    if (offer) let_go(other, std::exchange(offer->place, {}));
  }
  released_ = true;
  own_ = {};
}

void write_label(const Call& call, Label label) {
  const CallWords words = words_of(call);
  std::memcpy(label.data(), words.data(), sizeof words);
}

Call call_of(std::span<const std::byte, node::kLabelBytes> label) {
  CallCode code;
  static_assert(sizeof code <= node::kLabelBytes);
  std::memcpy(&code, label.data(), sizeof code);
  const std::optional<Call> call = decode(code);
  if (!call) {
    throw CorruptionError(
        "shared memory: another rank of this host sent an invalid description of a call");
  }
  return *call;
}

}  // namespace mccl::engine
