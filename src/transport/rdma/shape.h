// The memory of a link: slots for sending, and slots posted for receiving. The two ends exchange
// their sizes, so builds with different sizes can connect.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/rdma/credits.h"
#include "transport/rdma/message.h"

namespace mccl::transport::rdma {

/// Size of a slot, which holds one message with its header: large enough that the cost per message
/// is negligible, small enough for the cache, and a multiple of the page size.
inline constexpr std::uint32_t kSlotBytes = 32 << 10;
inline constexpr std::uint32_t kReceiveSlots = 16;
inline constexpr std::uint32_t kSendSlots = 8;
/// Number of send slots that data may not use: messages that return credit must not wait for a free
/// slot.
inline constexpr std::uint32_t kSendReserved = 2;
inline constexpr std::size_t kBerthBytes = std::size_t{kSlotBytes} * (kReceiveSlots + kSendSlots);

static_assert(kReceiveSlots >= Credits::kLeastDepth);

/// The receive slots of one end, as described to the other.
struct Shape {
  std::uint32_t depth = kReceiveSlots;
  std::uint32_t slot_bytes = kSlotBytes;
};
/// Bounds for the Shape that a peer may send.
inline constexpr std::uint32_t kMostDepth = 1 << 16;
inline constexpr std::uint32_t kLeastSlotBytes = 4 << 10;
inline constexpr std::uint32_t kMostSlotBytes = 64 << 20;

inline bool is_possible(const Shape& shape) {
  return shape.depth >= Credits::kLeastDepth && shape.depth <= kMostDepth &&
         shape.slot_bytes >= kLeastSlotBytes && shape.slot_bytes <= kMostSlotBytes;
}

}  // namespace mccl::transport::rdma
