// A text that parses as an endpoint must serialise to the same text.
#include <cstdint>
#include <cstdlib>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/connections/candidates.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    if (mccl::rendezvous::serialise(mccl::rendezvous::parse_endpoint(text)) != text) std::abort();
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
