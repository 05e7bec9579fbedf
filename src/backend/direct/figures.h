// How long the ways of a group take, as measured, and which is the fastest.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "backend/request.h"

namespace mccl::direct {

/// What is measured: calls that move data in ways of their own.
inline constexpr std::array kMeasuredCalls{Collective::all_reduce, Collective::reduce_scatter,
                                           Collective::all_gather, Collective::all_to_all,
                                           Collective::broadcast};
/// Bytes of a call's longer buffer.
inline constexpr std::array<std::size_t, 3> kMeasuredBytes{
    std::size_t{64} << 10, std::size_t{2} << 20, std::size_t{64} << 20};

/// Seconds of each measured call and length by one way; 0 where it does not do that.
struct Figures {
  std::array<std::array<float, kMeasuredBytes.size()>, kMeasuredCalls.size()> seconds{};

  /// As that of the slowest rank.
  void take_slower(const Figures& other);
};

/// The ways by which a call may go, the fastest first, by the measured call most like it: of like
/// ways the earlier one. Who has no figure comes last.
std::vector<int> fastest_first(std::span<const Figures> ways, const Request& request);

}  // namespace mccl::direct
