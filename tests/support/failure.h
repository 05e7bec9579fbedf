#pragma once

#include <functional>
#include <string>

#include "mccl/error.h"

namespace mccl::testing {

/// Returns the message of the Failure that `call` throws; any other exception propagates.
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
