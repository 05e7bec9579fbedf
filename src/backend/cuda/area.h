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
  kernels::cuda::Alarm& alarm() const {
    return *reinterpret_cast<kernels::cuda::Alarm*>(alarm_.data());
  }

 private:
  std::string allocate();
  std::string open(Group& group);

  const Device device_;
  const device::cuda::Driver& cu_;
  device::Block alarm_;
  device::cuda::Address memory_ = 0;
  device::cuda::Address counters_ = 0;
  kernels::cuda::Fabric fabric_{};
  std::string objection_;
};

}  // namespace mccl::cuda
