// The header of every message between two queue pairs, its validation, and the slots that hold
// messages. Both ends are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/rdma/pair/credits.h"

namespace mccl::transport::rdma {

enum class MessageKind : std::uint16_t {
  hello,  ///< First message of each end; tests the path.
  ready,  ///< The dialing end has received the other's hello.
  data,
  credit,  ///< Carries only the count of returned receives.
  probe,   ///< Asks whether all earlier messages have arrived; used on uc.
  close,   ///< No more messages follow.
  answer,  ///< Answers a probe: all earlier messages have arrived.
};
inline constexpr int kMessageKinds = 7;

struct MessageHeader {
  /// Secret token of the receiver, which proves that the sender is its peer.
  std::uint64_t token = 0;
  std::uint32_t sequence = 0;  ///< Counts all messages of one direction.
  std::uint32_t bytes = 0;     ///< Payload bytes after the header.
  std::uint32_t returned = 0;  ///< Receives that the sender has posted again, in total.
  std::uint16_t kind = 0;
  std::uint16_t question = 0;  ///< Probe: its number. Answer: the number of the probe. Else 0.
};
inline constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
static_assert(kHeaderBytes == 24);

void encode(const MessageHeader& header, std::span<std::byte> into);

/// Result of decode(). `fault` says what is wrong with the message; empty if it is valid.
struct Decoded {
  MessageHeader header;
  std::string fault;
};
Decoded decode(std::span<const std::byte> message, std::uint64_t token, std::size_t most);

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

/// The receive slots of one end, as described to the other, so that builds with different sizes can
/// connect.
struct SlotShape {
  std::uint32_t depth = kReceiveSlots;
  std::uint32_t slot_bytes = kSlotBytes;
};
/// Bounds for the SlotShape that a peer may send.
inline constexpr std::uint32_t kMostDepth = 1 << 16;
inline constexpr std::uint32_t kLeastSlotBytes = 4 << 10;
inline constexpr std::uint32_t kMostSlotBytes = 64 << 20;

inline bool is_possible(const SlotShape& shape) {
  return shape.depth >= Credits::kLeastDepth && shape.depth <= kMostDepth &&
         shape.slot_bytes >= kLeastSlotBytes && shape.slot_bytes <= kMostSlotBytes;
}

}  // namespace mccl::transport::rdma
