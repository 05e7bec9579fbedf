// Selection of the devices that this process uses, and their description for the other ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mccl/config.h"
#include "transport/rdma/station.h"
#include "transport/rdma/survey/card.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::transport::rdma {

struct Survey {
  Card card;
  bool has_devices = false;  ///< True if a device exists, in any state, or a setting lists one.
  /// Stations in the order of the card's devices; null for a device that cannot be used.
  std::vector<std::shared_ptr<Station>> stations;
};

/// Opens the devices listed in the settings, or else all with an active port, for `rank` of a job
/// of `size` ranks. `verbs` may be null, with the reason in `why`. Missing devices do not throw:
/// the card reports them per device. If the transport must be rdma and a listed device is missing,
/// the card reports that no device can be used. Throws InvalidArgument for invalid settings.
Survey survey(const Config& config, WorldRank rank, int size, const std::shared_ptr<Verbs>& verbs,
              const std::string& why);
/// Returns the card of a rank that uses no device, for the reason `why`.
Card card_without(const std::string& why);

/// Returns the addresses that the setting allows: all if it is empty, those of a kind (roce_v2,
/// roce_v1, infiniband, ipv4, ipv6), or the one that it names.
std::vector<Gid> wanted_gids(std::vector<Gid> gids, const std::string& wanted);

}  // namespace mccl::transport::rdma
