// Runs a kernel for Mac GPUs on the host.
#pragma once

#include <cstdint>
#include <string>

namespace mccl::testing {

/// Throws std::invalid_argument if there is no kernel of that name.
void run_on_host(const std::string& name, const std::uint16_t* a, const std::uint16_t* b,
                 std::uint16_t* out, std::uint32_t count);

}  // namespace mccl::testing
