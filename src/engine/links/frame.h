// The fixed header that precedes every message on a data link, little-endian. The header identifies
// the message's call, so that a mismatch is detected before any payload is used. The header always
// has a checksum of its own; MCCL_TRANSPORT_CRC decides whether the payload has one, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/calls/call.h"

namespace mccl::engine {

/// The text after each colon lists the fields of Frame and Call that the kind uses.
enum class FrameKind : std::uint8_t {
  collective,  ///< step of a collective: sequence, message, then the payload
  eager,       ///< whole point-to-point message: tag, sequence = sender's message number
  /// announces a message that needs a grant: same fields as eager. The payload is empty, or the
  /// address of the message in the sender's memory (8 bytes), if the receiver may pull it
  request,
  grant,   ///< asks for an announced message: sequence = number of that message
  data,    ///< piece of a granted message: same fields as eager, and message = piece number
  credit,  ///< returns credit for received eager messages: count = bytes of credit
  pulled,  ///< the receiver has pulled an announced message: sequence = number of that message
};
inline constexpr int kFrameKindCount = 7;

struct Frame {
  FrameKind kind = FrameKind::collective;
  Call call = {};
  /// In a collective frame, the index of the message among those that the call sends to this peer.
  /// In a data frame, the index of the piece.
  std::uint32_t message = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t crc = 0;
  bool has_crc = false;
};

inline constexpr std::size_t kFrameBytes = 56;
using FrameBytes = std::array<std::byte, kFrameBytes>;

FrameBytes encode(const Frame& frame);

/// Returns the checksum of all fields of the header before the checksum, which is in the last 4
/// bytes: the upper half of a sum over the header's words. Each word is mixed with its own upper
/// half and multiplied by an odd factor. A change of one bit, or of one bit in each of two words,
/// always changes the checksum. Computing it takes a fraction of the time of a CRC, which would be
/// noticeable for a small message.
std::uint32_t checksum_of(const FrameBytes& bytes);

/// `crc`: true if payloads must have a checksum, false if they must have none. Throws
/// CorruptionError if the bytes are not a valid header, contradict `crc`, or announce a payload of
/// more than `payload_limit` bytes.
Frame decode(std::span<const std::byte> bytes, std::size_t payload_limit, bool crc);

}  // namespace mccl::engine
