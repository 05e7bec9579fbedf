// Measured times of a group's paths, and the choice of the fastest one.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "backend/direct/path.h"
#include "backend/request.h"

namespace mccl::direct {

/// The collectives that are measured; each has its own pattern of data movement.
inline constexpr std::array kMeasuredCalls{Collective::all_reduce, Collective::reduce_scatter,
                                           Collective::all_gather, Collective::all_to_all,
                                           Collective::broadcast};
/// Measured sizes: the bytes of a call's longer buffer.
inline constexpr std::array<std::size_t, 3> kMeasuredBytes{
    std::size_t{64} << 10, std::size_t{2} << 20, std::size_t{64} << 20};

/// Seconds that one path takes for each measured call and length; 0 if the path does not support
/// the call.
struct Figures {
  std::array<std::array<float, kMeasuredBytes.size()>, kMeasuredCalls.size()> seconds{};

  /// Replaces each time by the time in `other` if the latter is longer. Once called with the
  /// figures of all ranks, this object holds the times of the slowest rank.
  void take_slower(const Figures& other);
};

/// Returns the indices of all paths, fastest first, by the time of the most similar measured call.
/// Paths with equal times keep their order. A path that does not support the measured call comes
/// last.
std::vector<int> fastest_first(std::span<const Figures> ways, const Request& request);

/// Device memory for the measurements.
struct Scratch {
  std::shared_ptr<void> in;
  std::shared_ptr<void> out;
};
/// Allocates the memory for measure(). Throws Error if the allocation fails.
Scratch scratch_on(device::Accelerator& accelerator);

/// Measures the collectives of kMeasuredCalls on `path`. Takes some milliseconds. All ranks must
/// call this function at the same time. Throws TimeoutError if a rank does not join a row of calls
/// within `patience`, and PeerError if the path fails.
Figures measure(Path& path, device::SerialQueue& queue, const Scratch& scratch, Device device,
                int ranks, std::chrono::milliseconds patience);

}  // namespace mccl::direct
