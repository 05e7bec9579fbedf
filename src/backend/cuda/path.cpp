#include "backend/cuda/path.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/cuda/area.h"
#include "backend/cuda/launch.h"
#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "kernels/cuda/image.h"
#include "mccl/error.h"

namespace mccl::cuda {
namespace {

using device::cuda::Current;
using device::cuda::Function;

Device device_of(const Request& request) {
  return request.in.device.kind == DeviceKind::cuda ? request.in.device : request.out.device;
}

class KernelPath final : public direct::Path {
 public:
  KernelPath(Group& group, std::chrono::milliseconds timeout, Log log,
             std::shared_ptr<direct::Notices> notices, SharedGpu shared)
      : cu_(device::cuda::driver()),
        group_(group),
        timeout_(timeout),
        log_(std::move(log)),
        notices_(std::move(notices)),
        shared_(shared) {}
  ~KernelPath() override { abort(); }

  bool takes(const Request& request) override;
  bool has_to_meet() const override { return !met_; }
  void enqueue(const Request& request, void* stream) override;
  void reach_memory(Device device) override;
  std::string failure() override;
  void end_calls() noexcept override;

 private:
  void meet(Device device);
  void exchange_windows();

  const device::cuda::CudaDriver& cu_;
  Group& group_;
  const std::chrono::milliseconds timeout_;
  const Log log_;
  const std::shared_ptr<direct::Notices> notices_;
  const SharedGpu shared_;
  bool met_ = false;
  Device device_;
  std::optional<Area> area_;
  Limits limits_ = limits_of(group_.size());
  Function functions_[kKernels][kSummed] = {};  ///< Kernels that only move data use one entry.
  std::unique_ptr<device::Lane> own_lane_;
};

bool KernelPath::takes(const Request& request) {
  const bool whole = request.in.device.kind != DeviceKind::cpu &&
                     request.out.device.kind != DeviceKind::cpu && request.counts.empty();
  if (!whole || group_.size() < 2 || group_.size() > kernels::cuda::kMostRanks) return false;
  switch (request.call.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      if (place_of(request.call.dtype) < 0 ||
          (request.call.kind != ReduceKind::sum && request.call.kind != ReduceKind::avg)) {
        return false;
      }
      break;
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast:
      break;
    default:
      return false;
  }
  if (!met_) meet(device_of(request));
  return lane() != nullptr;
}

void KernelPath::meet(Device device) {
  met_ = true;
  device_ = device;
  area_.emplace(group_, device, timeout_, shared_);
  std::string objection = area_->objection();
  const auto image = kernels::cuda::image();
  if (objection.empty() && image.empty()) {
    objection = "this build has no GPU kernels, because nvcc was missing";
  }
  if (!objection.empty()) {
    notices_->warn(group_,
                   fmt::format("collectives on GPUs do not use MCCL's own kernels: {}", objection));
    return;
  }
  const Current current(cu_, device::cuda::context_of(device.index));
  device::cuda::Module module = nullptr;
  cu_.check(cu_.ModuleLoadData(&module, image.data()), "cuModuleLoadData");
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    const auto which = static_cast<Kernel>(kernel);
    for (int place = 0; place < (sums(which) ? kSummed : 1); ++place) {
      cu_.check(
          cu_.ModuleGetFunction(&functions_[kernel][place], module, name_of(which, place).c_str()),
          "cuModuleGetFunction");
    }
  }
  if (!area_->all_by_nvlink()) limits_ = limits_.without_packed();
  own_lane_ = std::make_unique<device::Lane>(device::depot_of(device));
  order_by(*own_lane_);
  log_.info("group '{}': collectives on {} use MCCL's kernels", group_.name(),
            own_lane_->accelerator().name());
  exchange_windows();
}

void KernelPath::reach_memory(Device device) {
  if (!met_) return meet(device);
  if (own_lane_) exchange_windows();
}

void KernelPath::exchange_windows() {
  const std::string objection = area_->exchange_windows(group_);
  if (objection.empty()) return;
  notices_->warn(
      group_, fmt::format("the ranks cannot access each other's memory on {}, so it is copied: {}",
                          device::name_of(device_), objection));
}

void KernelPath::enqueue(const Request& request, void* stream) {
  if (device_of(request) != device_) {
    throw InvalidArgument(fmt::format(
        "{}: rank {} created group '{}' on {} but calls it on {}; use one GPU per group",
        name_of(request.call.collective), group_.rank(), group_.name(), device::name_of(device_),
        device::name_of(device_of(request))));
  }
  if (const std::string reason = failure(); !reason.empty()) {
    throw PeerError(fmt::format("{} on rank {} ({}) cannot start: {}",
                                name_of(request.call.collective), group_.rank(),
                                device::name_of(device_), reason));
  }
  if (request.in.bytes() == 0 && request.out.bytes() == 0) return;
  Launch launch =
      launch_of(request, group_.size(), limits_, area_->processors(), area_->has_windows());
  if (area_->has_windows()) {
    launch.task.in_place = area_->place_of(request.in.data, request.in.bytes());
  }
  kernels::cuda::Fabric fabric = area_->fabric();
  void* arguments[] = {&fabric, &launch.task};
  const Current current(cu_, device::cuda::context_of(device_.index));
  const Function function = functions_[static_cast<int>(launch.kernel)]
                                      [sums(launch.kernel) ? place_of(request.call.dtype) : 0];
  cu_.check(cu_.LaunchKernel(function, launch.blocks, 1, 1, launch.threads, 1, 1, 0,
                             static_cast<device::cuda::Stream>(stream), arguments, nullptr),
            "cuLaunchKernel");
}

std::string KernelPath::failure() {
  if (!area_) return {};
  const auto& alarm = area_->alarm();
  if (const std::uint32_t late = __atomic_load_n(&alarm.late, __ATOMIC_RELAXED); late != 0) {
    return fmt::format(
        "rank {} of group '{}': a kernel waited for rank {} for {} ms; a rank has not made the "
        "call, or made it with data outside GPU memory",
        group_.rank(), group_.name(), late - 1, timeout_.count());
  }
  std::string reason = group_.failure();  // a rank has died, left, or aborted the group
  if (reason.empty() && __atomic_load_n(&alarm.stop, __ATOMIC_RELAXED) != 0) {
    reason = "the group has been aborted";
  }
  return reason;
}

void KernelPath::end_calls() noexcept {
  if (area_) __atomic_store_n(&area_->alarm().stop, 1U, __ATOMIC_RELAXED);
}

}  // namespace

SharedGpu shared_gpu_named(std::string_view name) {
  if (name == "nvlink") return SharedGpu::nvlink;
  return name == "pcie" ? SharedGpu::pcie : SharedGpu::refused;
}

std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices,
                                        SharedGpu shared) {
  device::cuda::driver();
  return std::make_shared<KernelPath>(group, timeout, std::move(log), std::move(notices), shared);
}

}  // namespace mccl::cuda
