#include "python/errors.h"
// The errors come first.
#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "join.h"
#include "mccl/context.h"
#include "numpy/interruptible.h"
#include "python/shared_metrics.h"

namespace mccl_mlx {

namespace nb = nanobind;

namespace {

/// The only state that the process has one of.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<mccl::Context>> contexts;
  /// What a child of fork() must never destroy.
  std::vector<std::shared_ptr<mccl::Context>> abandoned;

  std::vector<std::shared_ptr<mccl::Context>> living() {
    std::vector<std::shared_ptr<mccl::Context>> found;
    for (const auto& context : contexts) {
      if (auto alive = context.lock()) found.push_back(std::move(alive));
    }
    return found;
  }
};

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

std::shared_ptr<mccl::Context> make_context(const mccl::ContextOptions& given) {
  mccl::ContextOptions options = given;
  if (options.size > 1) {
    const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::duration<double>(options.config.connect_timeout));
    options.store =
        mccl::make_tcp_store(options.config.root, options.rank, options.config.job_key, patience);
  }
  return mccl::Context::create(options);
}

}  // namespace

nb::capsule join(const std::map<std::string, std::string>& settings) {
  mccl::ContextOptions options;
  for (const auto& [name, value] : settings) options.config.set(name, value);
  options.rank = options.config.rank;
  options.size = options.config.world_size;
  options.metrics = mccl::python::shared_metrics(options.rank);
  std::shared_ptr<mccl::Context> context;
  mccl::numpy::run_interruptibly([options] { return make_context(options); }, context);
  {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().contexts, [](const auto& entry) { return entry.expired(); });
    registry().contexts.push_back(context);
  }
  // It shares ownership of the context.
  auto held = std::make_unique<std::shared_ptr<mccl::Group>>(context, context->world().get());
  nb::capsule capsule(held.get(), kGroupCapsule, [](void* group) noexcept {
    delete static_cast<std::shared_ptr<mccl::Group>*>(group);
  });
  held.release();
  return capsule;
}

std::shared_ptr<mccl::Group> native_group_in(const nb::capsule& capsule) {
  const void* pointer = PyCapsule_GetPointer(capsule.ptr(), kGroupCapsule);
  if (pointer == nullptr) throw nb::python_error();
  return *static_cast<const std::shared_ptr<mccl::Group>*>(pointer);
}

void leave_all() {
  std::vector<std::shared_ptr<mccl::Context>> living;
  {
    const std::lock_guard lock(registry().mutex);
    living = registry().living();
  }
  for (const auto& context : living) context->shutdown();
}

void before_fork() { registry().mutex.lock(); }

void after_fork_in_parent() { registry().mutex.unlock(); }

void after_fork_in_child() {
  auto living = registry().living();
  for (const auto& context : living) context->abandon_after_fork();
  for (auto& context : living) registry().abandoned.push_back(std::move(context));
  registry().contexts.clear();
  registry().mutex.unlock();
}

}  // namespace mccl_mlx
