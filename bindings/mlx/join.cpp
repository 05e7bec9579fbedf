#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <chrono>
#include <memory>
#include <utility>

#include "join.h"
#include "mccl/context.h"
#include "numpy/interruptible.h"
#include "python/capsule.h"
#include "python/context_registry.h"
#include "python/shared_metrics.h"
#include "turns.h"

namespace mccl_mlx {

namespace nb = nanobind;

namespace {

/// The contexts that join() has made.
mccl::python::ContextRegistry& registry() {
  static auto* instance = new mccl::python::ContextRegistry;
  return *instance;
}

}  // namespace

nb::capsule join(const std::map<std::string, std::string>& settings) {
  mccl::Config config;
  for (const auto& [name, value] : settings) config.set(name, value);
  const std::shared_ptr<mccl::Metrics> metrics = mccl::python::shared_metrics(config.rank);
  std::shared_ptr<mccl::Context> context;
  mccl::numpy::run_interruptibly(
      [config, metrics] { return mccl::Context::from_environment(config, metrics); }, context);
  registry().add(context);
  // The group pointer shares ownership of the context.
  return mccl::python::capsule_of(std::shared_ptr<mccl::Group>(context, context->world().get()),
                                  mccl::python::kGroupCapsule);
}

std::shared_ptr<mccl::Group> native_group_in(const nb::capsule& capsule) {
  const void* pointer = PyCapsule_GetPointer(capsule.ptr(), mccl::python::kGroupCapsule);
  if (pointer == nullptr) throw nb::python_error();
  return *static_cast<const std::shared_ptr<mccl::Group>*>(pointer);
}

/// Waits for pending calls of MLX first, because other ranks may need this rank's last send. For
/// example, a text generator sends a token that it has computed ahead of time.
void leave_all() {
  constexpr std::chrono::seconds kForTheLastCalls{2};
  PendingCalls::of_process().wait_until_none(kForTheLastCalls);
  registry().shutdown_all();
}

void before_fork() {
  // Release the GIL: another thread that forks may hold the registry's lock and wait for the GIL.
  const nb::gil_scoped_release without_gil;
  registry().before_fork();
}

void after_fork_in_parent() { registry().after_fork_in_parent(); }

void after_fork_in_child() { registry().after_fork_in_child(); }

}  // namespace mccl_mlx
