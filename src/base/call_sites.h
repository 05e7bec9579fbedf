// The table behind mccl::call_site(). One table serves the whole process, because a place in a
// program does not belong to a context.
#pragma once

#include <cstdint>
#include <string_view>

#include "mccl/call_site.h"

namespace mccl {

/// Text of the place whose CallSite::number is `number`; empty if there is none. Thread-safe; takes
/// no lock.
std::string_view text_of_call_site(std::uint16_t number) noexcept;

}  // namespace mccl
