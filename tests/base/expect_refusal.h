// Checks that a call is refused with InvalidArgument, and checks the message.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "mccl/error.h"

namespace mccl::test {

/// Returns the message of the InvalidArgument that `call` throws. If it throws none, fails the test
/// and returns "".
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
