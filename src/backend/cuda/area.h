// The staging area on a rank's GPU, which the kernels of all ranks of a group write.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/path.h"
#include "backend/direct/agreement.h"
#include "device/cuda/driver.h"
#include "device/depot.h"
#include "device/pool.h"
#include "kernels/cuda/fabric.h"
#include "mccl/group.h"

namespace mccl::cuda {

struct WindowOffer;

/// A rank's area and its view of the others'. Memory that other ranks can reach is never freed
/// before the process ends, because no rank knows when the last peer has stopped using it.
class Area {
 public:
  /// A collective of all ranks, which makes calls of `group` on host memory. If the ranks cannot
  /// reach each other, `objection()` has the reason on all of them.
  Area(Group& group, Device device, std::chrono::milliseconds patience, SharedGpu shared);

  const std::string& objection() const { return objection_; }
  const kernels::cuda::Fabric& fabric() const { return fabric_; }
  /// True if all ranks' GPUs are joined by NVLink, which delivers lines of 128 bytes whole. The
  /// same on all ranks.
  bool all_by_nvlink() const { return all_by_nvlink_; }
  /// Multiprocessors that the kernels of each rank may fill; the same on all ranks.
  unsigned processors() const { return processors_; }
  /// Announces new windows of this GPU to the other ranks and opens theirs; a collective of all
  /// ranks. If some rank cannot, none uses the new windows, and all get the reason. Returns it, or
  /// an empty string.
  std::string exchange_windows(Group& group);
  /// True if there are windows that all ranks reach; the same on all ranks.
  bool has_windows() const { return has_windows_; }
  /// The place of `memory` for other ranks' kernels, or kNowhere if they do not reach it.
  std::uint64_t place_of(const void* memory, std::size_t bytes) const;

  kernels::cuda::Alarm& alarm() const {
    return *reinterpret_cast<kernels::cuda::Alarm*>(alarm_.data());
  }

 private:
  std::string allocate();
  std::string open(Group& group);
  std::string open_windows(int peer, std::span<const WindowOffer> offers);
  std::string write_table();
  bool is_by_nvlink(const direct::Card& own, const direct::Card& peer) const;

  const Device device_;
  const SharedGpu shared_;
  const device::cuda::Driver& cu_;
  device::Block alarm_;
  device::cuda::Address memory_ = 0;
  device::cuda::Address counters_ = 0;
  kernels::cuda::Fabric fabric_{};
  std::string objection_;
  bool all_by_nvlink_ = false;
  unsigned processors_ = 1;

  const std::shared_ptr<device::Pool> pool_;
  /// Table of all ranks' windows in device memory, for the kernels.
  device::cuda::Address table_ = 0;
  std::vector<std::byte*> windows_;  ///< Copy of that table on the host.
  std::size_t told_ = 0;             ///< Windows of this GPU that all other ranks reach.
  std::vector<std::size_t> known_;   ///< Number of known windows of each rank.
  bool has_windows_ = false;
};

}  // namespace mccl::cuda
