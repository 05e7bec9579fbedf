// Defines the module mccl._distributed, the compiled part of mccl.distributed, and holds this
// process's membership in a job. A process is in at most one job at a time.
#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "mccl/context.h"
#include "mccl/meeting.h"
#include "numpy/array.h"
#include "numpy/callback_thread.h"
#include "numpy/group.h"
#include "numpy/interruptible.h"
#include "numpy/work.h"
#include "python/capsule.h"
#include "python/shared_metrics.h"

namespace mccl::numpy {
namespace {

using Settings = std::map<std::string, std::string>;

/// The membership of this process in a job, which is called its world. Accessed with the GIL held;
/// blocking functions also hold the lock of mccl.distributed.
struct ProcessWorld {
  std::shared_ptr<Context> context;
  nb::object world;  ///< The Group of all ranks.
  /// Stores, keyed by Placement::root, which is empty if rank 0 publishes its address through the
  /// launcher. Stores are kept until the process ends. Otherwise a rank that starts its next world
  /// early could connect to a store that rank 0 is about to close. Stores reached along cables are
  /// not kept, because they end with their world.
  std::map<std::string, std::shared_ptr<Store>> stores;
  /// In a forked child, the contexts of the parent process, which the child must not destroy.
  std::vector<std::shared_ptr<Context>> abandoned;
};

ProcessWorld& registry() {
  static auto* instance = new ProcessWorld;
  return *instance;
}

Config config_of(const Settings& settings) {
  Config config;
  for (const auto& [name, value] : settings) config.set(name, value);
  return config;
}

/// Returns a job of this process alone if there is no placement.
Placement place_of(const Config& config) {
  return find_placement(config, process_environment()).value_or(Placement());
}

nb::object start(const Settings& settings) {
  ProcessWorld& process = registry();
  if (process.context)
    throw InvalidArgument(
        "start: the world already exists; call shutdown() before making another world");
  ContextOptions options;
  options.config = config_of(settings);
  const Placement place = place_of(options.config);
  options.rank = place.rank;
  options.size = place.size;
  options.metrics = python::shared_metrics(options.rank);
  if (meets_by_mpi(options.config)) {
    options.rank = options.config.rank;
    options.size = options.config.world_size;
  } else if (options.size > 1) {
    const auto join = [place, config = options.config, metrics = options.metrics] {
      return rendezvous::join(place, config, metrics);
    };
    rendezvous::Joined joined;
    if (const auto kept = process.stores.find(place.root); kept != process.stores.end()) {
      joined.store = kept->second;
    } else {
      run_interruptibly(join, joined);
      if (!joined.wiring) process.stores[place.root] = joined.store;
    }
    options.store = std::move(joined.store);
    options.wiring = std::move(joined.wiring);
  }
  run_interruptibly([options] { return Context::create(options); }, process.context);
  process.world = nb::cast(ArrayGroup(process.context->world()));
  return process.world;
}

/// Memory of `bytes` bytes for the buffers of collectives, as a NumPy array of bytes.
nb::object allocate(std::size_t bytes) {
  const std::shared_ptr<Context> context = registry().context;
  if (!context) throw InvalidArgument("empty: this process is in no job; call init() first");
  std::shared_ptr<std::byte> memory;
  {
    const nb::gil_scoped_release without_gil;  // clearing new pages takes time
    memory = context->allocate(bytes);
  }
  std::byte* const data = memory.get();
  const nb::capsule owner = python::capsule_of(std::move(memory));
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(data, {bytes}, owner));
}

nb::object world() {
  const nb::object& found = registry().world;
  return found.is_valid() ? found : nb::none();
}

void refuse_in_callback() {
  if (callback_thread().is_current())
    throw InvalidArgument(
        "a callback of a call cannot leave the job: call shutdown() or reconfigure() on another "
        "thread");
}

void shutdown() {
  ProcessWorld& process = registry();
  const auto context = std::exchange(process.context, nullptr);
  process.world = {};
  const nb::gil_scoped_release without_gil;
  if (context) context->shutdown();
  callback_thread().stop();
}

/// Called when the process ends. The destructor of a store that this rank serves removes the
/// store's key file.
void close_stores() {
  auto stores = std::exchange(registry().stores, {});
  const nb::gil_scoped_release without_gil;
  stores.clear();
}

/// Releases the GIL while it waits for the engine's locks. Another thread that forks may hold these
/// locks, and may need the GIL to release them.
void before_fork() {
  const std::shared_ptr<Context> context = registry().context;
  const nb::gil_scoped_release without_gil;
  if (context) context->before_fork();
}

void after_fork_in_parent() {
  if (registry().context) registry().context->after_fork_in_parent();
}

void after_fork_in_child() {
  ProcessWorld& process = registry();
  forget_callback_thread_after_fork();
  nb::set_leak_warnings(false);  // the child leaks objects on purpose
  if (process.context) {
    process.context->abandon_after_fork();
    process.abandoned.push_back(std::move(process.context));
  }
  process.world.release();  // a child must not destroy the group or a store
  static_cast<void>(new auto(std::exchange(process.stores, {})));
}

void bind_world(nb::module_& module) {
  using nb::literals::operator""_a;
  module.def("start", &start, "settings"_a,
             "Makes the world from resolved settings: connects to all other ranks.");
  module.def(
      "place_of",
      [](const Settings& settings) {
        const Config config = config_of(settings);
        const Placement place = place_of(config);
        if (!place.root.empty()) (void)rendezvous::meeting_point(place, config);
        return nb::make_tuple(place.rank, place.size, place.root);
      },
      "settings"_a,
      "The rank, the size and the root that resolved settings and the launcher give. Raises "
      "InvalidArgument if they are wrong.");
  module.def("allocate", &allocate, "bytes"_a,
             "Memory for the buffers of collectives, as an array of bytes.");
  module.def("world", &world, "The group of all ranks, or None.");
  module.def("refuse_in_callback", &refuse_in_callback,
             "Raises InvalidArgument in a callback of a call. To be called before shutdown(), and "
             "without a lock for which another thread's shutdown() could wait.");
  module.def("shutdown", &shutdown, "Leaves the job, and ends the background threads.");
  module.def("close_stores", &close_stores, "Closes the stores through which the ranks met.");
  module.def("before_fork", &before_fork, "Waits until no call of the world is in progress.");
  module.def("after_fork_in_parent", &after_fork_in_parent, "Lets the world continue.");
  module.def("after_fork_in_child", &after_fork_in_child,
             "Drops the world, without a message to the peers.");
}

}  // namespace
}  // namespace mccl::numpy

NB_MODULE(_distributed, module) {
  module.doc() = "Groups of ranks whose calls take arrays.";
  mccl::numpy::load_numpy();
  mccl::python::bind_errors();
  mccl::numpy::bind_work(module);
  mccl::numpy::bind_group(module);
  mccl::numpy::bind_world(module);
}
