#include "backend/native/backend.h"

#include "backend/check.h"
#include "backend/cuda/path.h"
#include "backend/native/calibration.h"
#include "backend/native/group.h"
#include "backend/nccl/path.h"
#include "schedule/facts.h"

namespace mccl::native {

NativeBackend::NativeBackend(const ContextOptions& options)
    : rank_(options.rank),
      size_(options.size),
      compression_(compression_named(options.config.compression, options.config.topk_ratio)),
      by_(options.config.backend),
      engine_(engine::Engine::create({options.rank, options.size, options.store, options.config,
                                      options.metrics, options.wiring})) {
  calibrate(engine_);
}

NativeBackend::~NativeBackend() { engine_->shutdown(); }

std::shared_ptr<Group> NativeBackend::make_group(const std::string& name,
                                                 const std::vector<int>& members,
                                                 std::chrono::milliseconds timeout,
                                                 const std::optional<Compression>& compression) {
  if (compression) check_ratio(*compression);
  std::shared_ptr<engine::GroupState> state =
      engine_->make_group(name, members, timeout, compression.value_or(compression_));
  if (!first_) first_ = state;
  auto group = std::make_shared<NativeGroup>(engine_, std::move(state));
  if (by_ == "nccl") group->use(nccl::make_path(*group, timeout, engine_->log()));
  if (by_ == "cuda") group->use(cuda::make_path(*group, timeout, engine_->log()));
  return group;
}

Costs NativeBackend::costs() const {
  const schedule::Facts facts = engine_->facts_of(*first_);
  Costs costs;
  for (const schedule::FactInfo& info : schedule::fact_table()) {
    costs.numbers.emplace_back(info.name, schedule::value_of(facts, info));
  }
  costs.nodes = facts.nodes;
  return costs;
}

}  // namespace mccl::native
