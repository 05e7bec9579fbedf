#include "backend/cuda/path.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/cuda/area.h"
#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "kernels/cuda/image.h"
#include "mccl/error.h"

namespace mccl::cuda {
namespace {

using device::cuda::Current;
using device::cuda::Function;
using kernels::cuda::Task;

Device device_of(const Request& request) {
  return request.in.device.kind == DeviceKind::cuda ? request.in.device : request.out.device;
}

const char* suffix_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    default:
      return nullptr;
  }
}

// Where one way becomes faster than another, as measured between two H200s (docs/gpu.md).
constexpr std::size_t kMostToAll = std::size_t{128} << 10;        ///< Bytes that a rank sends.
constexpr std::size_t kMostFlaggedPart = std::size_t{256} << 10;  ///< For each rank.
constexpr std::size_t kLeastThreads = 128;
/// Lines of 16 bytes, of a part, for which each thread of a block on each multiprocessor takes one.
constexpr std::size_t kMostOfOneEach = std::size_t{64} << 10;
static_assert(kMostToAll <= kernels::cuda::kMostFlagged &&
              kMostFlaggedPart <= kernels::cuda::kMostFlagged / 2);

/// What is launched for a request.
struct Launch {
  std::string kernel;
  unsigned blocks;
  unsigned threads;
  Task task;
};

class KernelPath final : public direct::Path {
 public:
  KernelPath(Group& group, std::chrono::milliseconds timeout, Log log)
      : cu_(device::cuda::driver()), group_(group), timeout_(timeout), log_(std::move(log)) {}
  ~KernelPath() override { abort(); }

  bool takes(const Request& request) override;
  void enqueue(const Request& request, void* stream) override;
  device::Lane& lane(const Request& /*request*/) override { return *lane_; }
  std::string failure() override;
  void abort() noexcept override;

 private:
  void meet(Device device);
  Launch launch_of(const Request& request) const;

  const device::cuda::Driver& cu_;
  Group& group_;
  const std::chrono::milliseconds timeout_;
  const Log log_;
  bool met_ = false;
  Device device_;
  std::optional<Area> area_;
  std::map<std::string, Function> functions_;
  std::unique_ptr<device::Lane> lane_;
};

bool KernelPath::takes(const Request& request) {
  const bool whole = request.in.device.kind != DeviceKind::cpu &&
                     request.out.device.kind != DeviceKind::cpu && request.counts.empty() &&
                     !request.own_counts;
  if (!whole || group_.size() < 2 || group_.size() > kernels::cuda::kMostRanks) return false;
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      if (!suffix_of(request.dtype) ||
          (request.op.kind != ReduceKind::sum && request.op.kind != ReduceKind::avg)) {
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
  return lane_ != nullptr;
}

void KernelPath::meet(Device device) {
  met_ = true;
  device_ = device;
  area_.emplace(group_, device, timeout_);
  std::string objection = area_->objection();
  const auto image = kernels::cuda::image();
  if (objection.empty() && image.empty()) {
    objection = "this build has no kernels for GPUs, as it had no nvcc";
  }
  if (!objection.empty()) {
    log_.warn("group '{}': collectives on GPUs go through the host: {}", group_.name(), objection);
    return;
  }
  const Current current(cu_, device::cuda::context_of(device.index));
  device::cuda::Module module = nullptr;
  cu_.check(cu_.ModuleLoadData(&module, image.data()), "cuModuleLoadData");
  for (const char* const name :
       {"mccl_flagged_sum_f32", "mccl_flagged_sum_f16", "mccl_flagged_sum_bf16",
        "mccl_flagged_parts_f32", "mccl_flagged_parts_f16", "mccl_flagged_parts_bf16",
        "mccl_flagged_scatter_f32", "mccl_flagged_scatter_f16", "mccl_flagged_scatter_bf16",
        "mccl_flagged_gather", "mccl_all_reduce_f32", "mccl_all_reduce_f16", "mccl_all_reduce_bf16",
        "mccl_reduce_scatter_f32", "mccl_reduce_scatter_f16", "mccl_reduce_scatter_bf16",
        "mccl_all_gather", "mccl_all_to_all", "mccl_broadcast"}) {
    cu_.check(cu_.ModuleGetFunction(&functions_[name], module, name), "cuModuleGetFunction");
  }
  lane_ = std::make_unique<device::Lane>(device::depot_of(device));
  log_.info("group '{}': collectives on {} go by kernels", group_.name(),
            lane_->accelerator().name());
}

Launch KernelPath::launch_of(const Request& r) const {
  using kernels::cuda::kMostBlocks;
  using kernels::cuda::kThreads;
  const char* const suffix = suffix_of(r.dtype);
  const auto ranks = static_cast<std::size_t>(group_.size());
  Launch launch;
  launch.task = {static_cast<const std::byte*>(r.in.data), static_cast<std::byte*>(r.out.data),
                 r.in.bytes(), r.op.kind == ReduceKind::avg ? static_cast<float>(ranks) : 1.0F,
                 r.root};
  const std::size_t whole = r.in.bytes();
  std::size_t part = whole;
  bool flagged = false;
  switch (r.collective) {
    case Collective::all_reduce:
      if (whole * (ranks - 1) <= kMostToAll) {
        launch.kernel = "mccl_flagged_sum_" + std::string(suffix);
        break;
      }
      part = (whole + ranks - 1) / ranks;
      flagged = part <= kMostFlaggedPart;
      launch.kernel = (flagged ? "mccl_flagged_parts_" : "mccl_all_reduce_") + std::string(suffix);
      break;
    case Collective::reduce_scatter:
      launch.task.bytes = part = r.out.bytes();
      flagged = part <= kMostFlaggedPart;
      launch.kernel =
          (flagged ? "mccl_flagged_scatter_" : "mccl_reduce_scatter_") + std::string(suffix);
      break;
    case Collective::all_gather:
      flagged = whole <= kMostFlaggedPart;
      launch.kernel = flagged ? "mccl_flagged_gather" : "mccl_all_gather";
      break;
    case Collective::all_to_all:
      launch.kernel = "mccl_all_to_all";
      launch.task.bytes = part = r.in.bytes() / ranks;
      break;
    default:
      launch.kernel = "mccl_broadcast";
      break;
  }
  const std::size_t lines = std::max<std::size_t>(1, (part + 15) / 16);
  // All blocks that may be before any has many threads: what waits is spread over the GPU. What is
  // long has two blocks on each multiprocessor, of which one moves data while the other meets.
  const bool is_long = lines > kMostOfOneEach;
  const std::size_t most_blocks = is_long ? kMostBlocks : kMostBlocks / 2;
  const std::size_t most_threads = is_long ? kThreads / 2 : kThreads;
  const std::size_t each = (lines + most_blocks - 1) / most_blocks;
  const std::size_t threads = std::min<std::size_t>(
      (std::max(each, std::min(lines, kLeastThreads)) + 31) / 32 * 32, most_threads);
  const std::size_t blocks = std::min((lines + threads - 1) / threads, most_blocks);
  launch.threads = static_cast<unsigned>(threads);
  launch.blocks = static_cast<unsigned>(blocks);
  return launch;
}

void KernelPath::enqueue(const Request& request, void* stream) {
  if (device_of(request) != device_) {
    throw InvalidArgument(fmt::format(
        "{}: rank {} made group '{}' on {} and calls it on {}; a group stays on its GPU",
        name_of(request.collective), group_.rank(), group_.name(), device::name_of(device_),
        device::name_of(device_of(request))));
  }
  if (const std::string reason = failure(); !reason.empty()) throw PeerError(reason);
  Launch launch = launch_of(request);
  if (request.in.bytes() == 0 && request.out.bytes() == 0) return;
  kernels::cuda::Fabric fabric = area_->fabric();
  void* arguments[] = {&fabric, &launch.task};
  const Current current(cu_, device::cuda::context_of(device_.index));
  cu_.check(cu_.LaunchKernel(functions_.at(launch.kernel), launch.blocks, 1, 1, launch.threads, 1,
                             1, 0, static_cast<device::cuda::Stream>(stream), arguments, nullptr),
            "cuLaunchKernel");
}

std::string KernelPath::failure() {
  if (!area_) return {};
  const auto& alarm = area_->alarm();
  if (const std::uint32_t late = __atomic_load_n(&alarm.late, __ATOMIC_RELAXED); late != 0) {
    return fmt::format(
        "rank {} of group '{}': a kernel has waited for rank {} for {} ms; some rank has not made "
        "the call, or not with data on a GPU",
        group_.rank(), group_.name(), late - 1, timeout_.count());
  }
  if (__atomic_load_n(&alarm.stop, __ATOMIC_RELAXED) != 0) return "the group was ended";
  return group_.failure();  // a rank has gone, or has ended the group
}

void KernelPath::abort() noexcept {
  if (area_) __atomic_store_n(&area_->alarm().stop, 1U, __ATOMIC_RELAXED);
}

}  // namespace

std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log) {
  device::cuda::driver();
  return std::make_shared<KernelPath>(group, timeout, std::move(log));
}

}  // namespace mccl::cuda
