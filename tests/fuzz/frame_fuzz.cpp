// Whatever decodes as a frame is what encode writes.
#include <algorithm>

#include "engine/frame.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::engine;
  mccl::fuzz::Input input(data, size);
  const auto limit = input.number<std::uint32_t>();
  const std::span<const std::byte> bytes = input.rest();
  try {
    const Frame frame = decode(bytes, limit);
    mccl::fuzz::require(frame.payload_bytes <= limit, "more payload than may be");
    mccl::fuzz::require(std::ranges::equal(encode(frame), bytes.first(kFrameBytes)),
                        "encode writes something else");
    (void)describe(frame.call);
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
