#include "transport/rdma/pair/message.h"

#include <fmt/format.h>

#include <cstring>

namespace mccl::transport::rdma {

void encode(const MessageHeader& header, std::span<std::byte> into) {
  std::memcpy(into.data(), &header, kHeaderBytes);
}

Decoded decode(std::span<const std::byte> message, std::uint64_t token, std::size_t most) {
  Decoded found;
  if (message.size() < kHeaderBytes) {
    found.fault = fmt::format("a message of {} bytes is too short for its header", message.size());
    return found;
  }
  std::memcpy(&found.header, message.data(), kHeaderBytes);
  const MessageHeader& header = found.header;
  const bool carries = header.kind == static_cast<std::uint16_t>(MessageKind::data);
  const bool asks = header.kind == static_cast<std::uint16_t>(MessageKind::probe) ||
                    header.kind == static_cast<std::uint16_t>(MessageKind::answer);
  if (header.token != token) {
    found.fault = "a message does not carry the token of this link, so another sender sent it";
  } else if (header.kind >= kMessageKinds || (header.question != 0 && !asks)) {
    found.fault = fmt::format("it sent a message of unknown kind {}", header.kind);
  } else if (header.bytes != message.size() - kHeaderBytes || header.bytes > most) {
    found.fault = fmt::format("a message header announces {} bytes, but {} follow", header.bytes,
                              message.size() - kHeaderBytes);
  } else if (carries != (header.bytes != 0)) {
    found.fault = carries ? "it sent a data message without data"
                          : fmt::format(
                                "it sent a message of kind {} with {} bytes of data, but this kind "
                                "carries none",
                                header.kind, header.bytes);
  }
  return found;
}

}  // namespace mccl::transport::rdma
