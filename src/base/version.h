#pragma once

#include <string_view>

namespace mccl {

/// Of this library, such as "0.1.0"; a zero follows it in memory.
std::string_view version();

}  // namespace mccl
