#include "backend/cuda/path.h"

#include <fmt/format.h>

#include <atomic>
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

class KernelPath final : public direct::DevicePath {
 public:
  KernelPath(direct::PathOptions options, SharedGpu shared)
      : DevicePath(std::move(options)), cu_(device::cuda::driver()), shared_(shared) {}
  ~KernelPath() override { abort(); }

  std::string_view algorithm() const override { return "kernels"; }
  void reach_memory(Device device) override;
  std::string failure() override;
  void end_calls() noexcept override;

 private:
  bool supports(const Request& request) const override;
  void meet() override;
  void start(const Request& request, void* stream) override;
  void exchange_windows();

  const device::cuda::CudaDriver& cu_;
  const SharedGpu shared_;
  std::optional<Area> area_;
  /// The alarm of `area_`, for abort() and failure(), which the engine's thread may call while the
  /// ranks meet; null until then.
  std::atomic<kernels::cuda::Alarm*> alarm_{nullptr};
  KernelLimits limits_ = limits_of(group().size());
  /// Indexed by Kernel and place_of(); kernels that only move data use 0 as the second index.
  Function functions_[kKernels][kSummed] = {};
};

bool KernelPath::supports(const Request& request) const {
  const bool whole = lies_on_device(request.in) && lies_on_device(request.out);
  if (!whole || !request.counts.empty() || group().size() < 2 ||
      group().size() > kernels::cuda::kMostRanks)
    return false;
  switch (request.call.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return place_of(request.call.dtype) >= 0 &&
             (request.call.kind == ReduceKind::sum || request.call.kind == ReduceKind::avg);
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast:
      return true;
    default:
      return false;
  }
}

void KernelPath::meet() {
  area_.emplace(group(), device_, options_.timeout, shared_);
  alarm_ = &area_->alarm();
  if (was_aborted()) end_calls();
  std::string objection = area_->objection();
  const auto image = kernels::cuda::image();
  if (objection.empty() && image.empty()) {
    objection =
        "this build has no GPU kernels (CMAKE_ARGS=-DMCCL_CUDA_KERNELS=ON includes them; this "
        "needs nvcc)";
  }
  if (!objection.empty()) {
    options_.notices->warn(
        group(), fmt::format("collectives on GPUs do not use MCCL's own kernels: {}", objection));
    return;
  }
  const Current current(cu_, device::cuda::context_of(device_.index));
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
  make_queue();
  options_.log.info("group '{}': collectives on {} use MCCL's kernels", group().name(),
                    own_queue_->accelerator().name());
  exchange_windows();
}

void KernelPath::reach_memory(Device device) {
  if (has_to_meet()) return connect(device);
  if (own_queue_) exchange_windows();
}

void KernelPath::exchange_windows() {
  const std::string objection = area_->exchange_windows(group());
  if (objection.empty()) return;
  options_.notices->warn(
      group(), fmt::format("collectives on {} copy data through a staging area, because the ranks "
                           "cannot access each other's memory: {}",
                           device::name_of(device_), objection));
}

void KernelPath::start(const Request& request, void* stream) {
  if (const std::string reason = failure(); !reason.empty()) refuse(request, reason);
  if (request.in.bytes() == 0 && request.out.bytes() == 0) return;
  Launch launch =
      launch_of(request, group().size(), limits_, area_->processors(), area_->has_windows());
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
  const kernels::cuda::Alarm* const alarm = alarm_;
  if (!alarm) return {};
  std::string reason = group().failure();  // not empty if a rank died, left or aborted the group
  if (!reason.empty()) return reason;
  if (const std::uint32_t late = __atomic_load_n(&alarm->late, __ATOMIC_RELAXED); late != 0) {
    return fmt::format(
        "rank {} of group '{}': a kernel waited for rank {} for {} ms; a rank has not made the "
        "call, or made it with data outside GPU memory",
        group().rank(), group().name(), late - 1, options_.timeout.count());
  }
  if (__atomic_load_n(&alarm->stop, __ATOMIC_RELAXED) != 0) {
    reason = "the group has been aborted";
  }
  return reason;
}

void KernelPath::end_calls() noexcept {
  if (kernels::cuda::Alarm* const alarm = alarm_)
    __atomic_store_n(&alarm->stop, 1U, __ATOMIC_RELAXED);
}

}  // namespace

SharedGpu shared_gpu_named(std::string_view name) {
  if (name == "nvlink") return SharedGpu::nvlink;
  return name == "pcie" ? SharedGpu::pcie : SharedGpu::refused;
}

std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options, SharedGpu shared) {
  return std::make_shared<KernelPath>(options, shared);
}

}  // namespace mccl::cuda
