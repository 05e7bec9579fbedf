// What `mccl probe` does, in Python: for hosts where mccl is not there.
#pragma once

#include <string>

namespace mccl::cli::hosts {

/// A script that needs nothing but Python 3. It reads the same commands and gives the same answers;
/// what it measures is slower than what a job would see.
std::string python_probe();

}  // namespace mccl::cli::hosts
