#include "python/errors.h"
// The errors come first.
#include <memory>
#include <utility>

#include "join.h"
#include "mccl/context.h"
#include "numpy/interruptible.h"
#include "python/context_registry.h"
#include "python/shared_metrics.h"

namespace mccl_mlx {

namespace nb = nanobind;

namespace {

/// The only state that the process has one of.
mccl::python::ContextRegistry& registry() {
  static auto* instance = new mccl::python::ContextRegistry;
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
  registry().add(context);
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

void leave_all() { registry().shutdown_all(); }

void before_fork() { registry().before_fork(); }

void after_fork_in_parent() { registry().after_fork_in_parent(); }

void after_fork_in_child() { registry().after_fork_in_child(); }

}  // namespace mccl_mlx
