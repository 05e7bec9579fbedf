// Questions about the checked arguments of a call.
#pragma once

#include "backend/shares.h"
#include "engine/calls/request.h"

namespace mccl {

using engine::Request;

/// Returns how the data of a request with one part per rank are divided among `ranks` ranks. For an
/// all_to_all, this is the division of the input.
inline Shares shares_of(const Request& request, int ranks) {
  if (!request.counts.empty()) return Shares::of(request.counts);
  return Shares::equal(ranks, request.call.count / static_cast<std::size_t>(ranks));
}

}  // namespace mccl
