// The fixed header that precedes every message on a data link, little-endian. It identifies the
// message's call, so that a mismatch is detected before any payload is used. The header always has
// a checksum of its own; a checksum of the payload is a setting of the job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/calls/call.h"

namespace mccl::engine {

enum class FrameKind : std::uint8_t {
  collective,  ///< step of a collective: sequence, message, then the payload
  eager,       ///< whole point-to-point message: tag, sequence = sender's message number
  request,     ///< announces a message that needs a grant: like eager, without payload
  grant,       ///< asks for an announced message: sequence = the sender's message number
  data,        ///< one piece of a granted message: like eager, message = number of the piece
  credit,      ///< returns the credit of received eager messages: count = their cost
};
inline constexpr int kFrameKindCount = 6;

struct Frame {
  FrameKind kind = FrameKind::collective;
  Call call = {};
  std::uint32_t message = 0;  ///< Number among this call's messages between this pair.
  std::uint32_t payload_bytes = 0;
  std::uint32_t crc = 0;
  bool has_crc = false;
};

inline constexpr std::size_t kFrameBytes = 56;
using FrameBytes = std::array<std::byte, kFrameBytes>;

FrameBytes encode(const Frame& frame);

/// Throws CorruptionError if the bytes cannot be a frame, announce more than `payload_limit` bytes,
/// or have a payload checksum although `crc` is false, or none although it is true.
Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc);

}  // namespace mccl::engine
