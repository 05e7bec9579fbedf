// The script of messages_fuzz.cpp, as bytes: a Script, the rail that it concerns, and what belongs
// to it. A fuzzer changes it, so every value of every field means something.
#pragma once

#include <cstdint>

namespace mccl::fuzz {

enum class Script : std::uint8_t {
  bytes,    ///< The peer writes: how many, the bytes.
  frame,    ///< The peer writes a ScriptFrame's frame.
  receive,  ///< This rank posts a ScriptCall.
  send,     ///< The same.
  cancel,   ///< This rank takes its oldest receive back.
  drain,    ///< The peer reads all that was sent to it.
  leave,    ///< The peer closes this rail.
  ask,      ///< The peer waits for room: the number of its last message.
};
inline constexpr int kScriptKinds = 8;

struct ScriptFrame {
  std::uint8_t kind;
  std::uint8_t dtype;
  std::uint8_t tag;
  std::uint8_t sequence;
  std::uint16_t count;
  std::uint16_t message;
  std::uint16_t payload_bytes;  ///< As announced.
  std::uint16_t sent_bytes;     ///< As sent.
};

struct ScriptCall {
  std::uint8_t dtype;
  std::uint8_t tag;
  std::uint8_t from_any;  ///< Of a receive: from whoever sends.
  std::uint8_t reserved;
  std::uint16_t count;
};

}  // namespace mccl::fuzz
