// Which devices this process uses, and what it tells the others of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mccl/config.h"
#include "transport/rdma/card.h"
#include "transport/rdma/station.h"
#include "transport/rdma/verbs.h"

namespace mccl::transport::rdma {

struct Survey {
  Card card;
  bool has_devices = false;  ///< Of any state, or named by a setting.
  /// In the order of the card's devices; null for one that cannot be used.
  std::vector<std::shared_ptr<Station>> stations;
};

/// Opens the devices that the settings name, or all whose port is active, for this rank of a job of
/// so many. `verbs` may be null, with the reason in `why`. Never throws for what is missing: the
/// card says it, of the device; where `rdma` is a must and a named device is missing, of all.
/// Throws InvalidArgument for settings that cannot be.
Survey survey(const Config& config, WorldRank rank, int size, const std::shared_ptr<Verbs>& verbs,
              const std::string& why);
/// Of a rank that uses none, for a reason of its own.
Card card_without(const std::string& why);

/// The addresses that the settings allow: all, those of a kind (roce_v2, roce_v1, infiniband, ipv4,
/// ipv6), or the one that is named.
std::vector<Gid> wanted_gids(std::vector<Gid> gids, const std::string& wanted);

}  // namespace mccl::transport::rdma
