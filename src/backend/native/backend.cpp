#include "backend/native/backend.h"

#include <vector>

#include "backend/check.h"
#include "backend/cuda/path.h"
#include "backend/direct/auto_path.h"
#include "backend/mpi/path.h"
#include "backend/native/calibration.h"
#include "backend/native/group.h"
#include "backend/native/units.h"
#include "backend/nccl/path.h"
#include "base/clock.h"
#include "base/pinned_memory.h"
#include "device/registry.h"
#include "schedule/facts.h"

namespace mccl::native {

NativeBackend::NativeBackend(const ContextOptions& options)
    : rank_(options.rank),
      size_(options.size),
      compression_(compression_named(options.config.compression, options.config.topk_ratio)),
      by_(options.config.backend),
      units_(units_of(options.config)),
      force_staging_(options.config.force_staging),
      // Detects GPUs without loading a driver, which a job that never uses a GPU does not need.
      engine_(engine::Engine::create(
          {.rank = options.rank,
           .size = options.size,
           .store = options.store,
           .config = options.config,
           .metrics = options.metrics,
           .wiring = options.wiring,
           .has_gpus = by_ == "auto" && device::sees_any(DeviceKind::cuda)})) {
  pinned_memory().set_limit(options.config.pinned_limit_bytes);
  if (by_ == "mpi") {
    engine_->tell_of_arrival();
    const auto patience = milliseconds_of(options.config.connect_timeout);
    give_path_ = [patience](NativeGroup& group, std::chrono::milliseconds) {
      group.carry_by_mpi(patience);
    };
    return;
  }
  calibrate(engine_);
  engine_->tell_of_arrival();
  const bool all_see_gpus = engine_->all_ranks_have_gpus();
  const cuda::SharedGpu shared = cuda::shared_gpu_named(options.config.test_only_shared_gpu);
  const bool encrypts = options.config.encryption == "on";
  give_path_ = [by = by_, all_see_gpus, shared, encrypts, log = engine_->log(),
                notices = std::make_shared<direct::Notices>(engine_->log(), engine_->weak_store())](
                   NativeGroup& group, std::chrono::milliseconds timeout) {
    const auto by_kernels = [&group, timeout, log, notices, shared] {
      return cuda::make_path(group, timeout, log, notices, shared);
    };
    const auto by_nccl = [&group, timeout, log, notices, encrypts] {
      return nccl::make_path(group, timeout, log, notices, encrypts);
    };
    group.use(notices);
    if (by == "cuda") return group.use(by_kernels());
    if (by == "nccl") return group.use(by_nccl());
    if (!all_see_gpus || group.size() < 2) return;
    group.use(std::make_shared<direct::AutoPath>(
        group, std::vector<direct::Candidate>{{"cuda", by_kernels}, {"nccl", by_nccl}}, timeout,
        log));
  };
}

NativeBackend::~NativeBackend() { engine_->shutdown(); }

std::shared_ptr<Group> NativeBackend::make_group(const std::string& name,
                                                 const std::vector<int>& members,
                                                 std::chrono::milliseconds timeout,
                                                 const std::optional<Compression>& compression) {
  if (by_ == "mpi") refuse_codec(compression);
  if (compression) check_ratio(*compression);
  auto group = std::make_shared<NativeGroup>(engine_, name, members, timeout,
                                             compression.value_or(compression_));
  if (!first_) first_ = group->state();
  group->get_path(give_path_);
  group->get_units(units_);
  if (force_staging_) group->stage_always();
  return group;
}

Costs NativeBackend::costs() const {
  if (by_ == "mpi") return {};  // unknown, since MPI chooses its algorithms itself
  const schedule::Facts facts = engine_->facts_of(*first_);
  Costs costs;
  for (const schedule::FactInfo& info : schedule::fact_table()) {
    costs.numbers.emplace_back(info.name, schedule::value_of(facts, info));
  }
  costs.nodes = facts.nodes;
  return costs;
}

}  // namespace mccl::native
