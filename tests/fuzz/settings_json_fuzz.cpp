// Settings in a JSON text are accepted or refused as a whole.
#include "input.h"
#include "mccl/config.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::Config config;
  try {
    config.merge_json(std::string(mccl::fuzz::Input(data, size).text()), "the fuzzer");
  } catch (const mccl::InvalidArgument&) {
    mccl::fuzz::require(config == mccl::Config(), "refused, and yet something changed");
  }
  return 0;
}
