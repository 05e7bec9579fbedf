#include "backend/native/backend.h"

#include "backend/check.h"
#include "backend/native/calibration.h"
#include "backend/native/group.h"
#include "schedule/facts.h"

namespace mccl::native {

NativeBackend::NativeBackend(const ContextOptions& options)
    : rank_(options.rank),
      size_(options.size),
      compression_(compression_named(options.config.compression, options.config.topk_ratio)),
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
  return std::make_shared<NativeGroup>(engine_, std::move(state));
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
