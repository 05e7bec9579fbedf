// The staging area of a rank's GPU, which the kernels of all ranks of a group write.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "device/depot.h"
#include "kernels/cuda/fabric.h"
#include "mccl/group.h"

namespace mccl::cuda {

/// A rank's area and its view of the others'. What others can reach stays until the process ends,
/// since nobody knows when the last of them has left it.
class Area {
 public:
  /// Of `group`, which makes calls on host memory here; all ranks do it together. Where they cannot
  /// reach each other, all are told why by `objection()`.
  Area(Group& group, Device device, std::chrono::milliseconds patience);

  const std::string& objection() const { return objection_; }
  const kernels::cuda::Fabric& fabric() const { return fabric_; }
  /// Whether all ranks' GPUs are joined by NVLink, through which lines of 128 bytes come whole. The
  /// same on all ranks.
  bool all_by_nvlink() const { return all_by_nvlink_; }
  kernels::cuda::Alarm& alarm() const {
    return *reinterpret_cast<kernels::cuda::Alarm*>(alarm_.data());
  }

 private:
  std::string allocate();
  std::string open(Group& group);
  bool is_by_nvlink(const char* bus) const;

  const Device device_;
  const device::cuda::Driver& cu_;
  device::Block alarm_;
  device::cuda::Address memory_ = 0;
  device::cuda::Address counters_ = 0;
  kernels::cuda::Fabric fabric_{};
  std::string objection_;
  bool all_by_nvlink_ = false;
};

}  // namespace mccl::cuda
