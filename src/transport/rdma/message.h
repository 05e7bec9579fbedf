// The header of every message between two queue pairs, and its validation. Both ends are
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

}  // namespace mccl::transport::rdma
