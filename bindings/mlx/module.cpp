// Defines the module mccl._mlx_0_32_4 (MCCL_MODULE), with which mx.distributed uses groups of MCCL.
// Python must import mlx.core before this module.
#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <mlx/mlx.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "exchange.h"
#include "gpu.h"
#include "group.h"
#include "join.h"
namespace nb = nanobind;

namespace mccl_mlx {
namespace {

mx::distributed::Group group_of(const nb::capsule& capsule, bool on_gpu) {
  return mx::distributed::Group(std::make_shared<MlxGroup>(native_group_in(capsule), on_gpu));
}

bool is_ours(const mx::distributed::Group& group) {
  return std::dynamic_pointer_cast<MlxGroup>(group.raw_group()) != nullptr;
}

mx::distributed::Group alone() { return mx::distributed::Group(std::make_shared<Alone>()); }

/// Adds an exchange to MLX's graph. In a group of one process the result is the input.
mx::array exchange(const mx::array& x, const mx::distributed::Group& group, ExchangeKind kind,
                   int root, std::vector<int> rows, std::vector<int> from,
                   mx::StreamOrDevice stream) {
  const ArrayExchange wanted{kind, root, std::move(rows), std::move(from)};
  const auto several = group_in(group);
  if (several) return record(x, wanted, several, stream);
  check(wanted, x.shape(), 0, 1);
  return x;
}

std::pair<mx::array, mx::array> rounded_mean(const mx::array& x,
                                             const mx::distributed::Group& group,
                                             const std::string& codec, double ratio,
                                             mx::StreamOrDevice stream) {
  const auto compression = mccl::compression_named(codec, ratio);
  const auto several = group_in(group);
  if (several) return record_rounded_mean(x, compression, several, stream);
  return {x, mx::zeros_like(x)};
}

void barrier(const mx::distributed::Group& group) {
  if (const auto several = group_in(group)) {
    several->run_now([](mccl::Group& native, const mccl::CallOptions& options) {
      return native.barrier(options);
    });
  }
}

void bind_exchanges(nb::module_& module) {
  using nb::literals::operator""_a;
  nb::enum_<ExchangeKind>(module, "ExchangeKind")
      .value("all_sum", ExchangeKind::all_sum)
      .value("all_mean", ExchangeKind::all_mean)
      .value("broadcast", ExchangeKind::broadcast)
      .value("reduce", ExchangeKind::reduce)
      .value("all_gather", ExchangeKind::all_gather)
      .value("sum_scatter", ExchangeKind::sum_scatter)
      .value("gather", ExchangeKind::gather)
      .value("scatter", ExchangeKind::scatter)
      .value("all_to_all", ExchangeKind::all_to_all);
  module.def("exchange", &exchange, "x"_a, "group"_a, "kind"_a, "root"_a, "rows"_a, "rows_from"_a,
             "stream"_a.none(), "Adds an exchange to MLX's graph; see mccl.mlx.operations.");
  module.def(
      "rounded_mean", &rounded_mean, "x"_a, "group"_a, "codec"_a, "ratio"_a, "stream"_a.none(),
      "Adds to MLX's graph the mean of all ranks' arrays, which a codec rounds before they are "
      "sent, and this rank's rounding error.");
  module.def("barrier", &barrier, "group"_a,
             "Blocks until every rank of the group has called barrier.");
  module.def(
      "is_tracer", [](const mx::array& array) { return array.is_tracer(); }, "array"_a,
      "Whether the array is a tracer, as in a function that MLX transforms or compiles.");
}

}  // namespace
}  // namespace mccl_mlx

NB_MODULE(MCCL_MODULE, module) {
  using nb::literals::operator""_a;
  module.doc() = "Groups of libmccl for mx.distributed.";
  mccl::python::bind_errors();
  module.def(
      "accepts", [](const mccl_mlx::mx::array&) { return true; }, "array"_a,
      "Returns True; raises TypeError if this module and MLX were built with incompatible "
      "versions of nanobind.");
  module.def(
      "join", &mccl_mlx::join, "settings"_a,
      "Connects to the other ranks; returns a capsule \"mccl.group\" with the group of all ranks.");
  module.def("group_of", &mccl_mlx::group_of, "capsule"_a, "on_gpu"_a,
             "Returns the group as an mx.distributed.Group. `on_gpu` selects GPU or CPU streams "
             "for calls that specify no stream.");
  module.def("has_gpu", &mccl_mlx::gpu::is_available,
             "Whether collectives of MLX arrays on the GPU work: a GPU exists, and MLX and this "
             "module are built for CUDA.");
  module.def("is_ours", &mccl_mlx::is_ours, "group"_a,
             "Whether the group was made by MCCL and has several ranks.");
  module.def("alone", &mccl_mlx::alone,
             "An mx.distributed.Group with this process as its only rank.");
  module.def("leave_all", &mccl_mlx::leave_all, nb::call_guard<nb::gil_scoped_release>(),
             "Disconnects from the peers of every group that join() made.");
  module.def("before_fork", &mccl_mlx::before_fork);
  module.def("after_fork_in_parent", &mccl_mlx::after_fork_in_parent);
  module.def("after_fork_in_child", &mccl_mlx::after_fork_in_child);
  mccl_mlx::bind_exchanges(module);
}
