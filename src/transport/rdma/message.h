// What stands at the head of every message between two queue pairs, and how it is checked. Both
// ends are little-endian, as the rest of what ranks tell each other is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mccl::transport::rdma {

enum class MessageKind : std::uint16_t {
  hello,  ///< "I can be heard": the first, from both ends.
  ready,  ///< The end that dialled has heard the other.
  data,
  credit,  ///< Nothing but the count of what has been returned.
  probe,   ///< Shows the number of what was sent before, where nothing sends it again.
  close,   ///< No more will come.
  answer,  ///< To a probe: what was sent before it has arrived.
};
inline constexpr int kMessageKinds = 7;

struct MessageHeader {
  std::uint64_t token = 0;     ///< The receiver's: a stranger does not know it.
  std::uint32_t sequence = 0;  ///< Counts all messages of one direction.
  std::uint32_t bytes = 0;     ///< That follow the header.
  std::uint32_t returned = 0;  ///< Receives that the sender of this has posted again, in all.
  std::uint16_t kind = 0;
  std::uint16_t question = 0;  ///< Of a probe: which; of an answer: to which; else 0.
};
inline constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
static_assert(kHeaderBytes == 24);

void encode(const MessageHeader& header, std::span<std::byte> into);

/// Of a message that has arrived, as the device says in so many bytes; `most` may follow a header.
/// What is wrong with it, or nothing.
struct Decoded {
  MessageHeader header;
  std::string fault;
};
Decoded decode(std::span<const std::byte> message, std::uint64_t token, std::size_t most);

}  // namespace mccl::transport::rdma
