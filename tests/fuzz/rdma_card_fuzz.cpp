// A text about a rank's RDMA devices is either refused, or a card that can be compared with this
// rank's card and drawn.
#include <string>

#include "base/value_text.h"
#include "input.h"
#include "mccl/error.h"
#include "transport/rdma/survey/survey.h"

namespace rdma = mccl::transport::rdma;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const mccl::fuzz::Input input(data, size);
  const mccl::WorldRank here(0), there(1);
  rdma::Card own;
  own.host = "here";
  own.services = {rdma::Service::rc, rdma::Service::uc};
  own.devices = {{"mlx5_0", {"RoCE v2 over IPv4"}, ""}, {"mlx5_1", {}, "its port is down"}};
  try {
    const rdma::Card theirs = rdma::parse_card(there, input.text());
    // Texts may differ, since long ones are truncated and escapes make them longer.
    const rdma::Card again = rdma::parse_card(there, rdma::serialise(theirs));
    mccl::fuzz::require(again.services == theirs.services && again.leads_to == theirs.leads_to &&
                            again.devices.size() == theirs.devices.size(),
                        "a card loses something of what it says");
    mccl::fuzz::require(!mccl::has_control_characters(theirs.host + theirs.why),
                        "a text that is shown holds what a terminal obeys");
    (void)rdma::is_uncabled(own, here, theirs, there);
    (void)rdma::picture_of({own, theirs});
    try {
      for (const std::size_t place : rdma::common_rails(theirs, there, own, here))
        mccl::fuzz::require(place < theirs.devices.size(), "a device that is not there");
      for (const std::size_t place : rdma::common_rails(own, here, theirs, there))
        mccl::fuzz::require(place < own.devices.size(), "a device of this rank that is not there");
    } catch (const mccl::CorruptionError&) {
      throw;
    } catch (const mccl::Error&) {  // the cards have no common device
    }
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
