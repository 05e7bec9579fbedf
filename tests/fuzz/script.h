// The byte format of the scripts in messages_fuzz.cpp. A step is a Script, the rail that it uses,
// and its arguments. Fuzzers mutate scripts, so every value of every field is valid.
#pragma once

#include <cstdint>

namespace mccl::fuzz {

enum class Script : std::uint8_t {
  bytes,    ///< The peer writes bytes; arguments: their number and the bytes.
  frame,    ///< The peer writes the frame of a ScriptFrame.
  receive,  ///< This rank posts the receive of a ScriptCall.
  send,     ///< This rank posts the send of a ScriptCall.
  cancel,   ///< This rank cancels its oldest receive.
  drain,    ///< The peer reads all that was sent to it.
  leave,    ///< The peer closes this rail.
  ask,      ///< The peer asks for credit; argument: the number of its last message.
};
inline constexpr int kScriptKinds = 8;

struct ScriptFrame {
  std::uint8_t kind;
  std::uint8_t dtype;
  std::uint8_t tag;
  std::uint8_t sequence;
  std::uint16_t count;
  std::uint16_t message;
  std::uint16_t payload_bytes;  ///< Announced in the frame.
  std::uint16_t sent_bytes;     ///< Written after the frame.
};

struct ScriptCall {
  std::uint8_t dtype;
  std::uint8_t tag;
  std::uint8_t from_any;  ///< Receives only: accepts any sender.
  std::uint8_t reserved;
  std::uint16_t count;
};

}  // namespace mccl::fuzz
