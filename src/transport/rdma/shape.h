// How much memory a link has: slots for what it sends, and slots that are posted to receive into.
// The two ends tell each other theirs, so that builds may differ.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/rdma/credits.h"
#include "transport/rdma/message.h"

namespace mccl::transport::rdma {

/// With the head: large enough that the cost of a message does not matter, small enough for the
/// cache, and a whole number of pages.
inline constexpr std::uint32_t kSlotBytes = 32 << 10;
inline constexpr std::uint32_t kReceiveSlots = 16;
inline constexpr std::uint32_t kSendSlots = 8;
/// Of those, what data may not use: what returns credit must not wait for them.
inline constexpr std::uint32_t kSendReserved = 2;
inline constexpr std::size_t kBerthBytes = std::size_t{kSlotBytes} * (kReceiveSlots + kSendSlots);

static_assert(kReceiveSlots >= Credits::kLeastDepth);

/// What one end tells of its receives.
struct Shape {
  std::uint32_t depth = kReceiveSlots;
  std::uint32_t slot_bytes = kSlotBytes;
};
/// What a peer may say of them.
inline constexpr std::uint32_t kMostDepth = 1 << 16;
inline constexpr std::uint32_t kLeastSlotBytes = 4 << 10;
inline constexpr std::uint32_t kMostSlotBytes = 64 << 20;

inline bool is_possible(const Shape& shape) {
  return shape.depth >= Credits::kLeastDepth && shape.depth <= kMostDepth &&
         shape.slot_bytes >= kLeastSlotBytes && shape.slot_bytes <= kMostSlotBytes;
}

}  // namespace mccl::transport::rdma
