// How long a way takes for the calls that are chosen by.
#pragma once

#include <chrono>
#include <memory>

#include "backend/direct/figures.h"
#include "backend/direct/path.h"

namespace mccl::direct {

/// Memory of a device to measure in.
struct Scratch {
  std::shared_ptr<void> in;
  std::shared_ptr<void> out;
};
/// Throws Error where there is none.
Scratch scratch_on(device::Accelerator& accelerator);

/// On this rank, while all others measure the same: some milliseconds. Throws TimeoutError when the
/// others do not come within `patience`, PeerError when the way fails.
Figures measure(Path& path, device::Lane& lane, const Scratch& scratch, Device device, int ranks,
                std::chrono::milliseconds patience);

}  // namespace mccl::direct
