// The staging area: memory on a rank's GPU to which the kernels of all ranks of a group write.
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

struct PoolWindowOffer;

/// This rank's staging area, and the addresses of the other ranks' areas. Memory that other ranks
/// can reach is never freed before the process ends, because no rank knows when the last peer has
/// stopped using it.
class Area {
 public:
  /// All ranks of `group` must call this constructor, which makes calls of the group on host
  /// memory. If the ranks cannot access each other's GPUs, objection() returns the reason on all
  /// ranks.
  Area(Group& group, Device device, std::chrono::milliseconds patience, SharedGpu shared);
  /// If the alarm told kernels to stop, one of them may still read it. Its memory is then never
  /// freed or reused.
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  const std::string& objection() const { return objection_; }
  const kernels::cuda::Fabric& fabric() const { return fabric_; }
  /// True if NVLink joins all ranks' GPUs; the same on all ranks. Only NVLink delivers all 128
  /// bytes of a packed line at once (see packed_line.h).
  bool all_by_nvlink() const { return all_by_nvlink_; }
  /// Number of multiprocessors that the kernels of each rank may occupy; the same on all ranks.
  unsigned processors() const { return processors_; }
  /// Shares new windows (blocks of device::Pool) of this GPU with the other ranks, and opens the
  /// other ranks' new windows. All ranks must call this function. If it fails on any rank, no rank
  /// uses the new windows, and all ranks return the reason. Returns an empty string on success.
  std::string exchange_windows(Group& group);
  /// True if there are windows that all ranks can access; the same on all ranks.
  bool has_windows() const { return has_windows_; }
  /// Returns the place (kernels::cuda::place_in()) of the `bytes` bytes at `memory`, for other
  /// ranks' kernels; kNowhere if those kernels cannot access the memory.
  std::uint64_t place_of(const void* memory, std::size_t bytes) const;

  kernels::cuda::Alarm& alarm() const {
    return *reinterpret_cast<kernels::cuda::Alarm*>(alarm_.data());
  }

 private:
  std::string allocate();
  std::string open(Group& group);
  std::string open_windows(int peer, std::span<const PoolWindowOffer> offers);
  std::string write_table();
  bool is_by_nvlink(const direct::DeviceIdentity& own, const direct::DeviceIdentity& peer) const;

  const Device device_;
  const SharedGpu shared_;
  const device::cuda::CudaDriver& cu_;
  device::Block alarm_;
  device::cuda::Address memory_ = 0;
  device::cuda::Address counters_ = 0;
  kernels::cuda::Fabric fabric_{};
  std::string objection_;
  bool all_by_nvlink_ = false;
  unsigned processors_ = 1;

  const std::shared_ptr<device::Pool> pool_;
  /// Addresses of all ranks' windows: a table in device memory, for the kernels.
  device::cuda::Address table_ = 0;
  std::vector<std::byte*> windows_;  ///< Copy of `table_` on the host.
  std::size_t shared_windows_ = 0;   ///< Number of this rank's shared windows.
  std::vector<std::size_t> known_;   ///< Number of windows that each rank has shared, by rank.
  bool has_windows_ = false;
};

}  // namespace mccl::cuda
