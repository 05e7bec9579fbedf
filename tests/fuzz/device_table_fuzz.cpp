// A table of RDMA devices is either refused, or each of its cables has a device at both ends. A
// table required to be a ring must be one.
#include <string>

#include "input.h"
#include "mccl/error.h"
#include "transport/rdma/survey/device_table.h"

namespace rdma = mccl::transport::rdma;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(mccl::fuzz::Input(data, size).text());
  try {
    const rdma::DeviceTable table = rdma::parse_device_table(text, "table");
    for (std::size_t a = 0; a < table.size(); ++a) {
      mccl::fuzz::require(table[a].size() == table.size() && table[a][a].empty(), "a bad row");
      for (std::size_t b = 0; b < table.size(); ++b)
        mccl::fuzz::require(table[a][b].size() == table[b][a].size(), "a cable of one end");
    }
    mccl::fuzz::require(rdma::is_ring(rdma::ring_of(table)) == rdma::is_ring(table),
                        "a ring loses a cable");
    rdma::require_shape("table", table, true);
    mccl::fuzz::require(rdma::is_ring(table), "no ring");
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
