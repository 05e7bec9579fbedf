// What goes before every message on a data link: a fixed header, little-endian, that names the call
// it belongs to, so that a mismatch is found before a byte of it is used. The header has a checksum
// of its own, always; that of the payload is a setting of the job.
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
  collective,  ///< a step of a collective: sequence, message, then the payload
  eager,       ///< a whole point-to-point message: tag, sequence = sender's message number
  request,     ///< "I have a message for you": as eager, without payload
  grant,       ///< "send it": sequence = the sender's message number
  data,        ///< as eager, but one piece of a granted message: message = number of the piece
  credit,      ///< "eager messages were taken": count = how much they cost
};
inline constexpr int kFrameKindCount = 6;

struct Frame {
  FrameKind kind = FrameKind::collective;
  Call call;
  std::uint32_t message = 0;  ///< Place among this call's messages between this pair.
  std::uint32_t payload_bytes = 0;
  std::uint32_t crc = 0;
  bool has_crc = false;
};

inline constexpr std::size_t kFrameBytes = 56;
using FrameBytes = std::array<std::byte, kFrameBytes>;

FrameBytes encode(const Frame& frame);

/// Throws CorruptionError when the bytes cannot be a frame, announce more than `payload_limit`, or
/// carry a checksum of the payload where the job has none, or none where it has one (`crc`).
Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc);

}  // namespace mccl::engine
