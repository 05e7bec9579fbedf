// The staging area of a rank's GPU, which the kernels of all ranks of a group write.
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

/// A rank's area and its view of the others'. What others can reach stays until the process ends,
/// since nobody knows when the last of them has left it.
class Area {
 public:
  /// Of `group`, which makes calls on host memory here; all ranks do it together. Where they cannot
  /// reach each other, all are told why by `objection()`.
  Area(Group& group, Device device, std::chrono::milliseconds patience, SharedGpu shared);

  const std::string& objection() const { return objection_; }
  const kernels::cuda::Fabric& fabric() const { return fabric_; }
  /// Whether all ranks' GPUs are joined by NVLink, through which lines of 128 bytes come whole. The
  /// same on all ranks.
  bool all_by_nvlink() const { return all_by_nvlink_; }
  /// Multiprocessors that the kernels of each rank may fill; the same on all ranks.
  unsigned processors() const { return processors_; }
  /// Tells the others of the windows of this GPU that are new, and learns of theirs; all ranks do
  /// it together. Where some rank cannot, none reaches what is new, and all are told why.
  std::string exchange_windows(Group& group);
  /// Whether there are windows that all reach; the same on all ranks.
  bool has_windows() const { return has_windows_; }
  /// For the others, where they reach it.
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
  device::cuda::Address table_ = 0;  ///< Of all ranks' windows, for the kernels.
  std::vector<std::byte*> windows_;  ///< The same, here.
  std::size_t told_ = 0;             ///< Windows of this GPU that all others reach.
  std::vector<std::size_t> known_;   ///< Of each rank, how many this one has heard of.
  bool has_windows_ = false;
};

}  // namespace mccl::cuda
