#include "mccl/host.h"

#include <memory>

#include "backend/mpi/finder.h"
#include "base/log.h"
#include "mccl/error.h"
#include "transport/rdma/survey/device_table.h"
#include "transport/rdma/survey/survey.h"
#include "transport/rdma/verbs/verbs.h"
#include "transport/tcp/interfaces.h"

namespace mccl {

bool has_active_rdma(const Config& config) {
  std::string why;
  const std::shared_ptr<transport::rdma::Verbs> verbs = transport::rdma::load_verbs(why);
  return !transport::rdma::survey(config, WorldRank(0), 1, verbs, why).stations.empty();
}

bool has_mpi(const std::map<std::string, std::string>& environment) {
  try {
    return mpi::find_library(environment) != nullptr;
  } catch (const InvalidArgument&) {
    return false;
  }
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  std::vector<std::string> of_loopback;
  for (const auto& each : transport::tcp::list_interfaces())
    if (each.up) (each.loopback ? of_loopback : addresses).push_back(each.address.host());
  addresses.insert(addresses.end(), of_loopback.begin(), of_loopback.end());
  return addresses;
}

int check_device_table(const std::string& path, bool ring) {
  return transport::rdma::check_device_table(path, ring);
}

void log_info(int rank, std::string_view text, const LogOptions& options) {
  Log(rank, options).write(LogLevel::info, text);
}

}  // namespace mccl
