// Which instruction set the kernels run on.
#pragma once

#include <string_view>
#include <vector>

namespace mccl::kernels {

/// Highway's name of the one in use: "AVX2", "AVX3" (AVX-512), "NEON", "SCALAR", …
std::string_view instruction_set();

/// All that this build holds and this machine can run, best first.
std::vector<std::string_view> instruction_sets();

/// For tests and measurements: uses one of instruction_sets() from now on; an empty name goes back
/// to the best. The results are the same bits on every set. Throws InvalidArgument for a name that
/// is not available.
void use_instruction_set(std::string_view name);

}  // namespace mccl::kernels
