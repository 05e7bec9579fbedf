// A list of hosts is either within the limit or refused.
#include "base/node_list.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 1000;
  try {
    const auto hosts = mccl::expand_node_list(mccl::fuzz::Input(data, size).text(), kMost);
    mccl::fuzz::require(hosts.size() <= kMost, "more hosts than were allowed");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
