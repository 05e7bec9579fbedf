// Measures how long a path takes for the calls in Figures.
#pragma once

#include <chrono>
#include <memory>

#include "backend/direct/figures.h"
#include "backend/direct/path.h"

namespace mccl::direct {

/// Device memory for the measurements.
struct Scratch {
  std::shared_ptr<void> in;
  std::shared_ptr<void> out;
};
/// Allocates the memory. Throws Error if that fails.
Scratch scratch_on(device::Accelerator& accelerator);

/// Measures `path`, which takes some milliseconds. All ranks must call it together. Throws
/// TimeoutError if a rank does not join within `patience`, and PeerError if the path fails.
Figures measure(Path& path, device::Lane& lane, const Scratch& scratch, Device device, int ranks,
                std::chrono::milliseconds patience);

}  // namespace mccl::direct
