// The places in a program from which calls are made. Flight records and errors show them.
#pragma once

#include <cstdint>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

/// A place in the program, such as a line of Python. Lives until the process ends.
struct CallSite {
  std::uint16_t number = 0;  ///< Unique in the process; from 1 to kMostCallSites.
  std::string_view text;     ///< Shown in flight records and errors, such as "train.py:42".
};

/// Maximum number of places that a process can keep.
inline constexpr std::uint16_t kMostCallSites = 4095;

/// Returns the place with this text, always the same object. Returns null if kMostCallSites other
/// places are kept, or if memory has run out. Takes a lock and searches all places, so keep the
/// result. Thread-safe.
MCCL_API const CallSite* call_site(std::string_view text) noexcept;

}  // namespace mccl
