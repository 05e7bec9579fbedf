// Runs the link on a real device, if this machine has one (tests/rdma/run boots a machine with
// one). Both ends are in this process, on one device.
#include "support/rdma_ends.h"
#include "transport/link_conformance.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::rdma_links;
using mccl::testing::RdmaEnds;

/// Returns the first device whose port 1 is active, or "" if there is none.
std::string usable_device(const std::shared_ptr<Verbs>& verbs) {
  if (!verbs) return {};
  for (const std::string& name : verbs->devices()) {
    try {
      if (verbs->open(name)->port(1).active) return name;
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

std::vector<LinkFactory> on_device() {
  std::string why;
  const std::shared_ptr<Verbs> verbs = load_verbs(why);
  const std::string device = usable_device(verbs);
  std::vector<LinkFactory> factories;
  if (device.empty()) return factories;
  for (const Service service : {Service::uc, Service::rc}) {
    factories.push_back(rdma_links(std::string(name_of(service)), [=] {
      return RdmaEnds::connect(verbs, device, device, service);
    }));
  }
  return factories;
}

INSTANTIATE_TEST_SUITE_P(RdmaDevice, LinkConformance, ::testing::ValuesIn(on_device()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl::transport::rdma
