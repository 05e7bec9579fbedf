// The byte formats of the scripts of some targets. Fuzzers mutate scripts, so every value of every
// field is valid.
#pragma once

#include <cstdint>

namespace mccl::fuzz {

/// A step in messages_fuzz.cpp. The rail that it uses and its arguments follow.
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

/// A step in record_reader_fuzz.cpp. Its arguments follow; a "size" has two bytes.
enum class RecordStep : std::uint8_t {
  data,     ///< The peer seals application data; arguments: the size and the padding (one byte).
  other,    ///< The peer seals other content; arguments: its type, padding, length and bytes.
  altered,  ///< The peer seals data and alters a byte; arguments: two sizes (of the data, and the
            ///< place of the byte) and the change.
  raw,      ///< The peer writes bytes that are not sealed; arguments: their number and the bytes.
  update,   ///< The peer replaces its key; argument: 1 if it requests the same of this end.
  alert,    ///< The peer seals an alert; arguments: its level and description.
  deliver,  ///< Some of the peer's bytes arrive; argument: their size.
  receive,  ///< This end receives; argument: the size of its buffer.
};
inline constexpr int kRecordSteps = 8;

/// Bits of the first byte in record_reader_fuzz.cpp.
inline constexpr int kWithThreads = 1;
inline constexpr int kSingleRecords = 4;

}  // namespace mccl::fuzz
