// Whatever decodes as a frame is what encode writes. The header's checksum is made right, or nothing
// would get past it.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/frame.h"
#include "input.h"
#include "kernels/checksum.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::engine;
  mccl::fuzz::Input input(data, size);
  const bool crc = input.byte() % 2 != 0;
  const auto limit = input.number<std::uint32_t>();
  std::vector<std::byte> bytes(input.rest().begin(), input.rest().end());
  if (bytes.size() >= kFrameBytes) {
    const auto covered = std::span(bytes).first(kFrameBytes - sizeof(std::uint32_t));
    const std::uint32_t checksum = mccl::kernels::crc32c(0, covered);
    std::memcpy(bytes.data() + covered.size(), &checksum, sizeof checksum);
  }
  try {
    const Frame frame = decode(bytes, limit, crc);
    mccl::fuzz::require(frame.payload_bytes <= limit, "more payload than may be");
    mccl::fuzz::require(std::ranges::equal(encode(frame), std::span(bytes).first(kFrameBytes)),
                        "encode writes something else");
    (void)describe(frame.call);
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
