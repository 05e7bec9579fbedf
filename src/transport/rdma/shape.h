// The memory of a link: slots for sending, and slots posted for receiving. The two ends exchange
// their values, so different builds may use different ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/rdma/credits.h"
#include "transport/rdma/message.h"

namespace mccl::transport::rdma {

/// Size with the header: large enough that the cost per message is negligible, small enough for the
/// cache, and a multiple of the page size.
inline constexpr std::uint32_t kSlotBytes = 32 << 10;
inline constexpr std::uint32_t kReceiveSlots = 16;
inline constexpr std::uint32_t kSendSlots = 8;
/// Send slots that data may not use: messages that return credit must not wait for a free slot.
inline constexpr std::uint32_t kSendReserved = 2;
inline constexpr std::size_t kBerthBytes = std::size_t{kSlotBytes} * (kReceiveSlots + kSendSlots);

static_assert(kReceiveSlots >= Credits::kLeastDepth);

/// The receives of one end, as sent to the other.
struct Shape {
  std::uint32_t depth = kReceiveSlots;
  std::uint32_t slot_bytes = kSlotBytes;
};
/// Bounds for the values that a peer may send.
inline constexpr std::uint32_t kMostDepth = 1 << 16;
inline constexpr std::uint32_t kLeastSlotBytes = 4 << 10;
inline constexpr std::uint32_t kMostSlotBytes = 64 << 20;

inline bool is_possible(const Shape& shape) {
  return shape.depth >= Credits::kLeastDepth && shape.depth <= kMostDepth &&
         shape.slot_bytes >= kLeastSlotBytes && shape.slot_bytes <= kMostSlotBytes;
}

}  // namespace mccl::transport::rdma
