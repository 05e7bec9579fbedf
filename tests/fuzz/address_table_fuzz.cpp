// A text that parses as a hostfile must give every rank an address.
#include <cstdint>
#include <cstdlib>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/cabling/hostfile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto table = mccl::rendezvous::parse_hostfile(text, "fuzz");
    for (const auto& addresses : table) {
      if (addresses.empty()) std::abort();
    }
    (void)mccl::rendezvous::may_be_sparse(table);
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
