#include "mccl/context.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/environment.h"
#include "mccl/error.h"
#include "mccl/meeting.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/meeting/join.h"

namespace mccl {
namespace {

class JobContext final : public Context {
 public:
  explicit JobContext(const ContextOptions& options)
      : config_(options.config), metrics_(options.metrics), backend_(make_backend(options)) {
    std::vector<int> everyone(static_cast<std::size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    world_ = backend_->make_group("world", everyone, milliseconds_of(config_.timeout));
  }

  /// Shuts down before the world group is destroyed, so that pending calls report the shutdown.
  ~JobContext() override { backend_->shutdown(); }

  int rank() const override { return backend_->rank(); }
  int size() const override { return backend_->size(); }
  const Config& config() const override { return config_; }
  std::shared_ptr<Metrics> metrics() const override { return metrics_; }
  Costs costs() const override { return backend_->costs(); }
  std::shared_ptr<Group> world() override { return world_; }

  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout,
                               const std::optional<Compression>& compression) override {
    return backend_->make_group(name, members, timeout, compression);
  }

  void shutdown() override { backend_->shutdown(); }
  void before_fork() noexcept override { backend_->before_fork(); }
  void after_fork_in_parent() noexcept override { backend_->after_fork_in_parent(); }
  void abandon_after_fork() noexcept override { backend_->abandon_after_fork(); }

 private:
  const Config config_;
  const std::shared_ptr<Metrics> metrics_;
  const std::unique_ptr<Backend> backend_;
  std::shared_ptr<Group> world_;
};

}  // namespace

std::shared_ptr<Context> Context::create(const ContextOptions& options) {
  ContextOptions whole = options;
  if (!whole.metrics) whole.metrics = std::make_shared<Metrics>();
  if (!whole.wiring && whole.size > 1 && !meets_by_mpi(whole.config))
    whole.wiring = rendezvous::wire(whole.rank, whole.size, whole.config, whole.metrics);
  return std::make_shared<JobContext>(whole);
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
