// A stream of control messages must be received alike however it is split, and each message, and an
// announcement of a collective in it, must encode to the same bytes. The first byte sets the length
// of the pieces.
#include <algorithm>
#include <vector>

#include "engine/groups/enqueued_calls.h"
#include "engine/peers/control.h"
#include "input.h"
#include "mccl/error.h"
#include "support/memory_link.h"

using namespace mccl::engine;

namespace {

struct Received {
  std::vector<std::vector<std::byte>> messages;
  bool corrupt = false;
  friend bool operator==(const Received&, const Received&) = default;
};

void decode_announcement_in(const ControlMessage& message) {
  try {
    mccl::fuzz::require(encode(decode_announcement(message.blob)) == message.blob,
                        "the announcement is written as something else");
  } catch (const mccl::CorruptionError&) {
  }
}

Received decode_all(std::span<const std::byte> stream) {
  Received heard;
  try {
    while (const auto decoded = decode_control(stream)) {
      const auto bytes = stream.first(decoded->bytes);
      heard.messages.emplace_back(bytes.begin(), bytes.end());
      const ControlMessage& message = decoded->message;
      mccl::fuzz::require(encode(message) == heard.messages.back(), "encode writes something else");
      if (message.kind == ControlKind::enqueued) decode_announcement_in(message);
      stream = stream.subspan(decoded->bytes);
    }
  } catch (const mccl::CorruptionError&) {
    heard.corrupt = true;
  }
  return heard;
}

Received receive_all(std::span<const std::byte> stream, std::size_t piece) {
  auto [near, far] = mccl::testing::MemoryLink::make();
  ControlConnection connection(std::move(near));
  Received heard;
  try {
    while (!stream.empty()) {
      const auto now = stream.first(std::min(piece, stream.size()));
      mccl::fuzz::require(far->write(now) == now.size(), "what was written is not taken off");
      stream = stream.subspan(now.size());
      while (const auto message = connection.receive()) {
        heard.messages.push_back(encode(*message));
        connection.consume();
      }
    }
  } catch (const mccl::CorruptionError&) {
    heard.corrupt = true;
  }
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  const std::size_t piece = input.byte() + 1;
  mccl::fuzz::require(decode_all(input.rest()) == receive_all(input.rest(), piece),
                      "pieces are heard as something else");
  return 0;
}
