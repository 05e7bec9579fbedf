#pragma once

#include <string_view>

namespace mccl {

/// The version of this library, such as "0.1.0". It is null-terminated.
std::string_view version();

}  // namespace mccl
