#include "engine/group_window.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "mccl/error.h"
#include "transport/shm/thrift.h"

namespace mccl::engine {
namespace {

using transport::shm::thrifty;
using transport::shm::Window;

constexpr std::size_t kLeastCallBytes = std::size_t{16} << 10;
constexpr std::size_t kFewRanks = 64;

struct LabelLayout {
  std::uint8_t collective;
  std::uint8_t dtype;
  std::uint8_t kind;
  std::uint8_t reserved;
  std::int32_t root;
  std::uint64_t count;
  std::uint64_t counts_hash;
  std::uint64_t sequence;
};
static_assert(sizeof(LabelLayout) <= transport::shm::kLabelBytes);

}  // namespace

GroupWindow::GroupWindow(int rank, std::vector<int> nodes)
    : rank_(rank),
      nodes_(std::move(nodes)),
      offers_(nodes_.size()),
      missing_(nodes_.size()),
      settled_(nodes_.empty()) {
  for (int other = 0; other < static_cast<int>(nodes_.size()); ++other) {
    if (other != rank && nodes_[other] == nodes_[rank]) neighbours_.push_back(other);
  }
}

/// Every rank of a node maps the windows of all: of very many, smaller ones.
std::size_t GroupWindow::usual() const {
  const std::size_t ranks = neighbours_.size() + 1;
  return ranks <= kFewRanks ? kUsualCallBytes : kUsualCallBytes / std::bit_ceil(ranks / kFewRanks);
}

WindowOffer GroupWindow::offer(const std::shared_ptr<transport::shm::Arena>& arena) {
  WindowOffer mine;
  if (!neighbours_.empty()) mine.call_bytes = thrifty(usual(), kLeastCallBytes, *arena);
  while (!neighbours_.empty() && !own_ && mine.call_bytes >= kLeastCallBytes) {
    own_ = arena->allocate(transport::shm::window_bytes(mine.call_bytes),
                           static_cast<std::uint32_t>(neighbours_.size()));
    if (!own_) mine.call_bytes /= 4;
  }
  // Who has no neighbours needs no memory, and sets no limit.
  if (neighbours_.empty()) mine.call_bytes = kUsualCallBytes;
  if (!neighbours_.empty() && !own_) mine.call_bytes = 0;
  if (own_) mine.place = own_.place();
  take(rank_, mine);
  return mine;
}

bool GroupWindow::take(int member, const WindowOffer& offer) {
  if (nodes_.empty() || released_) return false;
  std::optional<WindowOffer>& known = offers_[static_cast<std::size_t>(member)];
  if (known) return false;
  known = offer;
  --missing_;
  return true;
}

std::vector<int> GroupWindow::missing_members() const {
  std::vector<int> missing;
  for (std::size_t member = 0; member < offers_.size(); ++member) {
    if (!offers_[member]) missing.push_back(static_cast<int>(member));
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
  std::vector<Window::Neighbour> mapped;
  for (const int other : neighbours_) {
    const rendezvous::Neighbour& found = neighbour(other);
    transport::shm::RangePlace& place = offers_[static_cast<std::size_t>(other)]->place;
    mapped.push_back({other, found.arena.map(place), found.bell()});
    place = {};  // this rank lets go of it once, with the mapping
  }
  window_.emplace(static_cast<int>(nodes_.size()), std::move(own_), std::move(mapped), call_bytes_);
}

std::vector<std::pair<int, transport::shm::RangePlace>> GroupWindow::release() {
  std::vector<std::pair<int, transport::shm::RangePlace>> unmapped;
  for (const int other : neighbours_) {
    std::optional<WindowOffer>& offer = offers_[static_cast<std::size_t>(other)];
    if (offer) unmapped.emplace_back(other, std::exchange(offer->place, {}));
  }
  released_ = true;
  window_.reset();
  own_ = {};
  return unmapped;
}

void write_label(const Call& call, Label label) {
  LabelLayout layout{};
  layout.collective = static_cast<std::uint8_t>(call.collective);
  layout.dtype = static_cast<std::uint8_t>(call.dtype);
  layout.kind = static_cast<std::uint8_t>(call.kind);
  layout.root = call.root;
  layout.count = call.count;
  layout.counts_hash = call.counts_hash;
  layout.sequence = call.sequence;
  std::memcpy(label.data(), &layout, sizeof layout);
}

Call call_of(std::span<const std::byte, transport::shm::kLabelBytes> label) {
  LabelLayout layout;
  std::memcpy(&layout, label.data(), sizeof layout);
  if (layout.reserved != 0 || !valid_types(layout.collective, layout.dtype, layout.kind)) {
    throw CorruptionError("shared memory: what a neighbour says of its call is no call");
  }
  Call call;
  call.collective = static_cast<Collective>(layout.collective);
  call.dtype = static_cast<DType>(layout.dtype);
  call.kind = static_cast<ReduceKind>(layout.kind);
  call.root = layout.root;
  call.count = layout.count;
  call.counts_hash = layout.counts_hash;
  call.sequence = layout.sequence;
  return call;
}

std::uint64_t fingerprint_of(const Call& call) {
  const std::uint64_t small =
      static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.dtype) << 8 |
      static_cast<std::uint64_t>(call.kind) << 16 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 24;
  // Odd factors: no single field can change without the sum changing.
  std::uint64_t mixed = small * 0x9e3779b97f4a7c15ULL;
  mixed += call.count * 0xc2b2ae3d27d4eb4fULL;
  mixed += call.counts_hash * 0x27d4eb2f165667c5ULL;
  mixed += call.sequence * 0x165667b19e3779f9ULL;
  return mixed;
}

}  // namespace mccl::engine
