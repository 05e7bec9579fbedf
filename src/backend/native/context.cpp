#include "mccl/context.h"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "backend/native/calibration.h"
#include "backend/native/group.h"
#include "base/environment.h"
#include "base/placement.h"
#include "engine/engine.h"
#include "mccl/error.h"
#include "rendezvous/join.h"
#include "schedule/facts.h"

namespace mccl {
namespace {

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

Costs costs_of(const schedule::Facts& facts) {
  Costs costs;
  for (const schedule::FactInfo& info : schedule::fact_table())
    costs.numbers.emplace_back(info.name, schedule::value_of(facts, info));
  costs.nodes = facts.nodes;
  return costs;
}

class NativeContext final : public Context {
 public:
  explicit NativeContext(const ContextOptions& options)
      : engine_(engine::Engine::create(engine::EngineOptions{
            options.rank, options.size, options.store, options.config, options.metrics})) {
    native::calibrate(engine_);
    std::vector<int> everyone(static_cast<std::size_t>(options.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    world_state_ = engine_->make_group("world", everyone, milliseconds_of(options.config.timeout));
    world_ = std::make_shared<native::NativeGroup>(engine_, world_state_);
  }

  ~NativeContext() override { engine_->shutdown(); }

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  const Config& config() const override { return engine_->config(); }
  std::shared_ptr<Metrics> metrics() const override { return engine_->metrics(); }
  Costs costs() const override { return costs_of(engine_->facts_of(*world_state_)); }
  std::shared_ptr<Group> world() override { return world_; }

  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout) override {
    return std::make_shared<native::NativeGroup>(engine_,
                                                 engine_->make_group(name, members, timeout));
  }

  void shutdown() override { engine_->shutdown(); }
  void before_fork() noexcept override { engine_->before_fork(); }
  void after_fork_in_parent() noexcept override { engine_->after_fork_in_parent(); }
  void abandon_after_fork() noexcept override { engine_->abandon_after_fork(); }

 private:
  const std::shared_ptr<engine::Engine> engine_;
  std::shared_ptr<engine::GroupState> world_state_;
  std::shared_ptr<Group> world_;
};

}  // namespace

std::shared_ptr<Context> Context::create(const ContextOptions& options) {
  return std::make_shared<NativeContext>(options);
}

std::shared_ptr<Context> Context::from_environment() {
  return from_environment(Config::from_environment());
}

std::shared_ptr<Context> Context::from_environment(Config settings,
                                                   std::shared_ptr<Metrics> metrics) {
  ContextOptions options;
  options.config = std::move(settings);
  options.metrics = std::move(metrics);
  const std::optional<Placement> placement = find_placement(options.config, process_environment());
  if (!placement) {
    throw InvalidArgument(
        "MCCL_RANK and MCCL_WORLD_SIZE are not set, and no launcher tells them (mccl launch, "
        "torchrun, mpirun or srun): give every process its rank (from 0) and the number of ranks, "
        "and MCCL_ROOT=host:port of rank 0 when there are several");
  }
  options.rank = placement->rank;
  options.size = placement->size;
  if (!options.metrics) options.metrics = std::make_shared<Metrics>();
  options.store = rendezvous::join(*placement, options.config, options.metrics);
  return create(options);
}

}  // namespace mccl
