#include "mccl/context.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/path.h"
#include "backend/direct/auto_path.h"
#include "backend/mpi/process.h"
#include "backend/native/calibration.h"
#include "backend/native/group.h"
#include "backend/native/units.h"
#include "backend/nccl/path.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/flight_recorder.h"
#include "base/pinned_memory.h"
#include "device/registry.h"
#include "engine/engine.h"
#include "mccl/error.h"
#include "mccl/meeting.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/meeting/join.h"
#include "schedule/choose.h"

namespace mccl {
namespace {

using native::GroupSetup;
using native::NativeGroup;

/// A context whose groups use the engine or, if installed, CUDA, NCCL or MPI. A group may outlive
/// its context; all later calls of such a group fail.
class JobContext final : public Context {
 public:
  /// Connects all ranks. `config` is the configuration that config() returns.
  /// `meets_along_cables`: true if join() has opened the store, along cables.
  JobContext(Config config, const ContextOptions& options, bool meets_along_cables)
      : config_(std::move(config)),
        store_(options.store),
        meets_along_cables_(meets_along_cables),
        compression_(compression_named(options.config.compression, options.config.topk_ratio)),
        setup_(std::make_shared<GroupSetup>(
            GroupSetup{nullptr, native::units_of(options.config), options.config.force_staging})),
        // Calls sees_any(), which loads no driver, because jobs that never use a GPU need none.
        engine_(engine::Engine::create(
            {.rank = options.rank,
             .size = options.size,
             .store = options.store,
             .config = options.config,
             .metrics = options.metrics,
             .wiring = options.wiring,
             .has_gpus = config_.backend == "auto" && device::sees_any(DeviceKind::cuda)})) {
    pinned_memory().set_limit(config_.pinned_limit_bytes);
    if (!uses_mpi()) native::calibrate(engine_);
    engine_->announce_arrival();
    uses_mpi() ? set_up_mpi() : set_up_devices();
    std::vector<int> everyone(static_cast<std::size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    world_ = make_group("world", everyone, milliseconds_of(config_.timeout), {});
  }

  /// Shuts the engine down before `world_` is destroyed, so that the error of pending calls names
  /// the shutdown as the cause.
  ~JobContext() override { engine_->shutdown(); }

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  const Config& config() const override { return config_; }
  std::shared_ptr<Metrics> metrics() const override { return engine_->metrics(); }
  std::string flight_record() const override { return engine_->recorder().to_json("asked"); }
  std::shared_ptr<Group> world() override { return world_; }

  /// Returns the costs of the world group. With MPI, they are empty, because MPI chooses its
  /// algorithms itself.
  Costs costs() const override {
    Costs costs;
    if (uses_mpi()) return costs;
    const schedule::Facts facts = engine_->facts_of(*world_->state());
    for (const schedule::FactInfo& info : schedule::fact_table()) {
      costs.numbers.emplace_back(info.name, schedule::value_of(facts, info));
    }
    costs.nodes = facts.nodes;
    return costs;
  }

  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout,
                               const std::optional<Compression>& compression) override {
    return make_group(name, members, timeout, compression);
  }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return engine_->allocate(bytes);
  }

  void shutdown() override {
    has_left_ = true;
    engine_->shutdown();
  }
  std::shared_ptr<Context> reconfigure(std::chrono::milliseconds timeout) override {
    if (uses_mpi()) {
      throw InvalidArgument(
          "reconfigure: MPI cannot replace the processes of a job; start the job again");
    }
    // A store must outlive the engine, because another rank may already wait there. But one that is
    // reached along the cables ends with their connections.
    ContextOptions next{.rank = rank(),
                        .size = size(),
                        .store = meets_along_cables_ ? nullptr : store_.lock(),
                        .config = config_,
                        .metrics = metrics()};
    if (timeout.count() > 0) {
      const double seconds = std::chrono::duration<double>(timeout).count();
      next.config.set("connect_timeout", fmt::format("{}", seconds));
    }
    if (has_left_.exchange(true))
      throw InvalidArgument("reconfigure: this context was shut down; create another");
    engine_->shutdown();
    if (meets_along_cables_) {
      Placement placement;
      placement.rank = next.rank;
      placement.size = next.size;
      rendezvous::Joined joined = rendezvous::join(placement, next.config, next.metrics);
      next.store = std::move(joined.store);
      next.wiring = std::move(joined.wiring);
    }
    return create(next);
  }
  void before_fork() noexcept override { engine_->before_fork(); }
  void after_fork_in_parent() noexcept override { engine_->after_fork_in_parent(); }
  void abandon_after_fork() noexcept override {
    has_left_ = true;
    engine_->abandon_after_fork();
  }

 private:
  bool uses_mpi() const { return config_.backend == "mpi"; }

  void set_up_mpi() {
    const auto patience = milliseconds_of(config_.connect_timeout);
    setup_->give_path = [patience](NativeGroup& group, std::chrono::milliseconds) {
      group.carry_by_mpi(patience);
    };
  }

  void set_up_devices() {
    const bool all_see_gpus = engine_->all_ranks_have_gpus();
    const cuda::SharedGpu shared = cuda::shared_gpu_named(config_.test_only_shared_gpu);
    const bool encrypts = config_.encryption == "on";
    const auto notices = std::make_shared<direct::Notices>(engine_->log(), engine_->weak_store());
    setup_->give_path = [by = config_.backend, all_see_gpus, shared, encrypts, log = engine_->log(),
                         notices](NativeGroup& group, std::chrono::milliseconds timeout) {
      const direct::PathOptions options{group, timeout, log, notices};
      const auto by_kernels = [options, shared] { return cuda::make_path(options, shared); };
      const auto by_nccl = [options, encrypts] { return nccl::make_path(options, encrypts); };
      group.use(notices);
      if (by == "cuda") return group.use(by_kernels());
      if (by == "nccl") return group.use(by_nccl());
      if (!all_see_gpus || group.size() < 2) return;
      group.use(std::make_shared<direct::AutoPath>(
          group, std::vector<direct::PathCandidate>{{"cuda", by_kernels}, {"nccl", by_nccl}},
          timeout, log));
    };
  }

  std::shared_ptr<NativeGroup> make_group(const std::string& name, const std::vector<int>& members,
                                          std::chrono::milliseconds timeout,
                                          const std::optional<Compression>& compression) {
    if (uses_mpi()) refuse_codec(compression);
    if (compression) check_ratio(*compression);
    auto group = std::make_shared<NativeGroup>(engine_, name, members, timeout,
                                               compression.value_or(compression_));
    group->set_up(setup_);
    return group;
  }

  const Config config_;
  std::atomic<bool> has_left_{false};  ///< True once the context has been shut down.
  /// The store through which the ranks met. The engine owns it until it is shut down.
  const std::weak_ptr<Store> store_;
  const bool meets_along_cables_;  ///< See the constructor.
  const Compression compression_;  ///< Compression of groups for which the program sets none.
  const std::shared_ptr<GroupSetup> setup_;
  const std::shared_ptr<engine::Engine> engine_;
  std::shared_ptr<NativeGroup> world_;
};

}  // namespace

std::shared_ptr<Context> Context::create(const ContextOptions& options) {
  ContextOptions whole = options;
  if (!whole.metrics) whole.metrics = std::make_shared<Metrics>();
  if (meets_by_mpi(whole.config))
    return std::make_shared<JobContext>(whole.config, mpi::placed(whole), false);
  if (!whole.wiring && whole.size > 1)
    whole.wiring = rendezvous::wire(whole.rank, whole.size, whole.config, whole.metrics);
  return std::make_shared<JobContext>(whole.config, whole, options.wiring != nullptr);
}

std::shared_ptr<Context> Context::from_environment() {
  return from_environment(Config::from_environment());
}

std::shared_ptr<Context> Context::from_environment(Config settings,
                                                   std::shared_ptr<Metrics> metrics) {
  ContextOptions options;
  options.config = std::move(settings);
  options.metrics = std::move(metrics);
  if (meets_by_mpi(options.config)) {
    options.rank = options.config.rank;
    options.size = options.config.world_size;
    return create(options);
  }
  const std::optional<Placement> placement = find_placement(options.config, process_environment());
  if (!placement) {
    throw InvalidArgument(
        "MCCL_RANK and MCCL_WORLD_SIZE are not set, and no launcher (mccl launch, torchrun, mpirun "
        "or srun) provides them: give every process its rank (from 0) and the number of ranks; "
        "with several ranks, set MCCL_ROOT=host:port of rank 0 too");
  }
  options.rank = placement->rank;
  options.size = placement->size;
  if (!options.metrics) options.metrics = std::make_shared<Metrics>();
  rendezvous::Joined joined = rendezvous::join(*placement, options.config, options.metrics);
  options.store = std::move(joined.store);
  options.wiring = std::move(joined.wiring);
  return create(options);
}

}  // namespace mccl
