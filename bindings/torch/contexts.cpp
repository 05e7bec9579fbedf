#include "contexts.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "job_store.h"
#include "mccl/config.h"
#include "mccl/error.h"
#include "mccl/store.h"
#include "process.h"
#include "python/context_registry.h"

namespace mccl_torch {
namespace {

/// Presents torch's store as a mccl::Store. torch adds a prefix for the group to the keys of this
/// store.
class TorchStore final : public mccl::Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    guarded("set", key,
            [&] { store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  }

  /// Polls the store instead of waiting in torch, because torch logs a warning whenever a wait
  /// fails, and ranks that connect query the store many times a second.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const Clock::time_point deadline = Clock::now() + timeout;
    std::string text;
    for (Clock::duration pause = kFirstPause; !find(key, text);) {
      if (Clock::now() >= deadline) {
        throw mccl::TimeoutError(
            c10::str("torch's store has no \"", key, "\" after ", timeout.count(),
                     " ms; check that every rank is started and can reach the store"));
      }
      std::this_thread::sleep_for(std::min(pause, deadline - Clock::now()));
      pause = std::min(2 * pause, kLongestPause);
    }
    return text;
  }

  std::int64_t add(const std::string& key, std::int64_t amount) override {
    std::int64_t value = 0;
    guarded("add", key, [&] { value = store_->add(key, amount); });
    return value;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Clock::duration kLongestPause = std::chrono::milliseconds(20);

  bool find(const std::string& key, std::string& text) {
    bool found = false;
    guarded("get", key, [&] {
      found = store_->check({key});
      if (!found) return;
      const std::vector<std::uint8_t> value = store_->get(key);
      text.assign(value.begin(), value.end());
    });
    return found;
  }

  template <typename Action>
  void guarded(const char* action, const std::string& key, Action&& run) {
    try {
      run();
    } catch (const c10::Error& e) {
      throw mccl::PeerError(c10::str("torch's store failed in ", action, "(\"", key,
                                     "\"): ", e.what_without_backtrace()));
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

/// The contexts and group names of this process.
struct TorchContexts {
  mccl::python::ContextRegistry contexts;
  std::mutex mutex;
  std::weak_ptr<mccl::Context> world;  ///< Context of torch's default group; guarded by mutex.
  std::map<std::string, int> made;     ///< Number of groups made, by name; guarded by mutex.
};

TorchContexts& registry() {
  static auto* instance = new TorchContexts;
  return *instance;
}

mccl::Config settings_of(const GroupRequest& request) {
  mccl::Config settings = mccl::Config::from_environment();
  for (const auto& [name, value] : request.settings) settings.set(name, value);
  return settings;
}

void remember(const std::shared_ptr<mccl::Context>& context, bool is_default) {
  registry().contexts.add(context);
  const std::lock_guard lock(registry().mutex);
  if (!is_default) return;
  registry().world = context;
  registry().made.clear();
}

/// Adds a number to `name`, because torch reuses names. All members of a group get the same number,
/// because each has made the same number of groups of that name.
std::string unused_name(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  return c10::str(name, "#", registry().made[name]++);
}

std::shared_ptr<mccl::Context> make_context(const GroupRequest& request, bool is_default) {
  mccl::ContextOptions options;
  options.rank = request.rank;
  options.size = request.size;
  options.store = std::make_shared<TorchStore>(request.store);
  options.config = settings_of(request);
  options.metrics = request.metrics;
  if (!is_default && options.config.port_base != 0) {
    if (registry().contexts.empty()) {
      // Use the rank in the default group: the port of a process must not depend on which group the
      // process creates first.
      options.config.port_base +=
          static_cast<int>(request.global_ranks[static_cast<std::size_t>(request.rank)]) -
          request.rank;
    } else {
      TORCH_WARN(
          "mccl: group \"", request.name,
          "\" cannot share the connections of another group of this process, because the "
          "default group does not use the backend mccl; the group listens on a free port instead "
          "of a port based on MCCL_PORT_BASE");
      options.config.port_base = 0;
    }
  }
  auto context = mccl::Context::create(options);
  remember(context, is_default);
  return context;
}

std::shared_ptr<mccl::Context> meet_elsewhere(const GroupRequest& request) {
  std::shared_ptr<mccl::Context> context;
  if (const JobStore* const job = job_store_in(request.store)) {
    mccl::ContextOptions options;
    options.rank = request.rank;
    options.size = request.size;
    options.store = job->joined().store;
    options.config = settings_of(request);
    options.metrics = request.metrics;
    options.wiring = job->joined().wiring;
    context = mccl::Context::create(options);
  } else {  // a job of one rank, or one that uses MPI, needs no store
    context = mccl::Context::from_environment(settings_of(request), request.metrics);
  }
  remember(context, true);
  return context;
}

/// The default group's context if all ranks of the requested group are in it; else null.
std::shared_ptr<mccl::Context> world_for(const GroupRequest& request) {
  std::shared_ptr<mccl::Context> world;
  {
    const std::lock_guard lock(registry().mutex);
    world = registry().world.lock();
  }
  if (!world) return nullptr;
  const auto& ranks = request.members;
  const bool inside = std::all_of(ranks.begin(), ranks.end(),
                                  [&](std::int64_t r) { return r >= 0 && r < world->size(); });
  const bool mine = ranks[static_cast<std::size_t>(request.rank)] == world->rank();
  return inside && mine ? world : nullptr;
}

/// Compression of the request if it differs from the context's compression; else empty.
std::optional<mccl::Compression> compression_in(const GroupRequest& request,
                                                const mccl::Context& context) {
  const mccl::Config wanted = settings_of(request);
  const mccl::Config& usual = context.config();
  if (wanted.compression == usual.compression && wanted.topk_ratio == usual.topk_ratio) return {};
  const auto found = mccl::compression_named(wanted.compression, wanted.topk_ratio);
  if (wanted.topk_ratio != usual.topk_ratio) require_topk(found);
  return found;
}

}  // namespace

void require_topk(const mccl::Compression& compression) {
  if (compression.codec == mccl::Codec::topk) return;
  throw mccl::InvalidArgument(
      "topk_ratio requires compression=\"topk\", but this group's sums use " +
      mccl::describe(compression) + "; pass both arguments, or no topk_ratio");
}

BackendParts join(const GroupRequest& request) {
  const WithoutGil without_gil;
  try {
    const bool is_default = request.global_ranks.empty();
    BackendParts result;
    result.timeout = request.timeout;
    result.context = is_default ? nullptr : world_for(request);
    if (result.context) {
      result.members.assign(request.members.begin(), request.members.end());
      result.compression = compression_in(request, *result.context);
      result.group = result.context->group(unused_name(request.name), result.members,
                                           request.timeout, result.compression);
    } else {
      result.context =
          request.elsewhere ? meet_elsewhere(request) : make_context(request, is_default);
      result.members.resize(static_cast<std::size_t>(request.size));
      std::iota(result.members.begin(), result.members.end(), 0);
      result.group = result.context->world();
    }
    result.global_ranks.assign(request.global_ranks.begin(), request.global_ranks.end());
    if (is_default) {
      result.global_ranks.assign(result.members.begin(), result.members.end());
    }
    return result;
  } catch (const std::exception&) {
    throw_torch_error(std::current_exception(), request.rank, "mccl:init");
  }
}

bool has_contexts() { return !registry().contexts.empty(); }

void shutdown_contexts() {
  const WithoutGil without_gil;
  registry().contexts.shutdown_all();
}

/// Releases the GIL while it waits for locks. Another thread that forks may hold these locks, and
/// may need the GIL to release them.
void before_fork() {
  const WithoutGil without_gil;
  registry().mutex.lock();
  registry().contexts.before_fork();
}

void after_fork_in_parent() {
  registry().contexts.after_fork_in_parent();
  registry().mutex.unlock();
}

void after_fork_in_child() {
  registry().contexts.after_fork_in_child();
  registry().world.reset();
  registry().mutex.unlock();
}

}  // namespace mccl_torch
