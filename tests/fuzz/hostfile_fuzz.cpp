// A hostfile is either refused, or its contents can be shown in a table.
#include "cli/launch/hostfile.h"
#include "input.h"
#include "mccl/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::cli::launch;
  try {
    const Hostfile file = parse_hostfile("hosts.json", mccl::fuzz::Input(data, size).text());
    mccl::fuzz::require(!file.hosts.empty(), "a hostfile without hosts");
    mccl::fuzz::require(!table_of(file).empty(), "a table of nothing");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
