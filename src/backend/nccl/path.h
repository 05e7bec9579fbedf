// Runs collectives on GPU memory through NCCL.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/direct/agreement.h"
#include "backend/direct/path.h"

namespace mccl::nccl {

/// The data of one rank that decide whether the ranks can use NCCL.
struct NcclOffer {
  direct::DeviceIdentity card;
  int version;  ///< Version of its NCCL.
};
/// Returns the reason if ranks with these offers cannot use NCCL together, and an empty string
/// otherwise. `offers` is indexed by rank. For `encrypts` see make_path().
std::string objection_to(std::span<const NcclOffer> offers, bool encrypts);

/// Creates the path of a group. Each rank needs its own GPU. Messages, and calls with types or
/// operations that NCCL lacks, go through the host. If `encrypts` is true, NCCL is not used between
/// hosts, because NCCL does not encrypt. Throws InvalidArgument if NCCL is not available.
std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options, bool encrypts);

}  // namespace mccl::nccl
