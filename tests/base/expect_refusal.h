// Checks that something is refused with InvalidArgument, and what the message says.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "mccl/error.h"

namespace mccl::test {

/// The message of the InvalidArgument that `call` throws; a test failure and "" when it throws
/// none.
template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected InvalidArgument";
  return "";
}

}  // namespace mccl::test
