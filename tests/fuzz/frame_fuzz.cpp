// Bytes that decode as a frame must encode to the same bytes. The input starts with the agreed
// settings, followed by the frame. For half of the inputs the checksum is corrected, since
// otherwise hardly any would pass the check.
#include <algorithm>

#include "engine/links/frame.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::engine;
  constexpr std::size_t kChecksumAt = kFrameBytes - sizeof(std::uint32_t);
  mccl::fuzz::Input input(data, size);
  const auto limit = input.number<std::uint32_t>();
  const std::size_t flags = input.byte();
  FrameBytes bytes{};
  const bool whole = input.rest().size() >= bytes.size();
  input.fill(bytes);
  if (flags & 2) {
    const std::uint32_t right = checksum_of(bytes);
    std::memcpy(bytes.data() + kChecksumAt, &right, sizeof right);
  }
  try {
    const std::span<const std::byte> seen(bytes);
    const Frame frame = decode(seen.first(whole ? kFrameBytes : kFrameBytes - 1), limit, flags & 1);
    mccl::fuzz::require(frame.payload_bytes <= limit, "more payload than may be");
    mccl::fuzz::require(encode(frame) == bytes, "encode writes something else");
    (void)describe(frame.call);
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
