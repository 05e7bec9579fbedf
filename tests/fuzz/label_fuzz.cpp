// A neighbour's label in the window either decodes to a call or is refused.
#include <algorithm>
#include <array>

#include "engine/calls/call.h"
#include "engine/collectives/group_window.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::engine;
  using Bytes = std::array<std::byte, mccl::node::kLabelBytes>;
  Bytes theirs;
  mccl::fuzz::Input(data, size).fill(theirs);
  try {
    const Call call = call_of(theirs);
    (void)describe(call);
    Bytes written;
    write_label(call, written);
    mccl::fuzz::require(fingerprint_of(call_of(written)) == fingerprint_of(call),
                        "a label loses something of its call");
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
