#pragma once

#include <functional>
#include <string>

#include "mccl/error.h"

namespace mccl::testing {

/// What the call fails with; any other kind of failure goes on to the caller.
template <typename Failure = Error>
std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "no failure";
}

}  // namespace mccl::testing
