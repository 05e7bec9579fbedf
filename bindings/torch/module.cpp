// Defines the module mccl._torch_2_11 (MCCL_MODULE), with which Python creates process groups.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <memory>
#include <utility>

#include "backend.h"
#include "callbacks.h"
#include "contexts.h"
#include "job_store.h"
#include "mps.h"
#include "process.h"
#include "python/shared_metrics.h"

namespace py = pybind11;

namespace mccl_torch {
namespace {

c10::intrusive_ptr<ProcessGroupMCCL> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, std::chrono::milliseconds timeout,
                                            std::string name,
                                            std::vector<std::int64_t> global_ranks,
                                            std::vector<std::int64_t> members,
                                            std::map<std::string, std::string> settings,
                                            bool elsewhere, bool reconfigurable) {
  GroupRequest request{store,
                       rank,
                       size,
                       timeout,
                       std::move(name),
                       std::move(global_ranks),
                       std::move(members),
                       std::move(settings),
                       mccl::python::shared_metrics(rank),
                       elsewhere};
  const py::gil_scoped_release without_gil;
  if (reconfigurable) return c10::make_intrusive<ProcessGroupMCCL>(std::move(request));
  return c10::make_intrusive<ProcessGroupMCCL>(join(request));
}

}  // namespace
}  // namespace mccl_torch

PYBIND11_MODULE(MCCL_MODULE, module) {
  using mccl_torch::ProcessGroupMCCL;
  module.doc() = "The torch.distributed backend of libmccl.";
  mccl_torch::find_main_thread();
  mccl_torch::register_mps_operators();
  // The imported module binds the base classes of the classes below.
  py::module_::import("torch.distributed.distributed_c10d");

  py::class_<ProcessGroupMCCL, c10d::Backend, c10::intrusive_ptr<ProcessGroupMCCL>> backend(
      module, "ProcessGroupMCCL");
  backend
      .def(
          "monitored_barrier",
          [](ProcessGroupMCCL& self, std::chrono::milliseconds timeout, bool wait_all_ranks) {
            c10d::BarrierOptions options;
            options.timeout = timeout;
            self.monitoredBarrier(options, wait_all_ranks);
          },
          py::arg("timeout") = c10d::kUnsetTimeout, py::arg("wait_all_ranks") = false,
          py::call_guard<py::gil_scoped_release>(),
          "A barrier whose error names the ranks that did not arrive.")
      .def(
          "perform_nocolor_split", [](const ProcessGroupMCCL&, const py::object&) {},
          py::arg("device"), "No-op: a rank outside a new group does not take part.")
      .def("all_reduce_keeping", &ProcessGroupMCCL::all_reduce_keeping, py::arg("tensor"),
           py::arg("left_out"), py::arg("op"), py::arg("topk_ratio") = py::none(),
           py::call_guard<py::gil_scoped_release>(),
           "all_reduce that also fills left_out, of the same shape, with the rounding error of "
           "this rank, which is 0 for elements that were sent exactly. With topk_ratio, the sum "
           "uses topk with that ratio; otherwise it uses the group's codec.")
      .def(
          "all_reduce_now", &ProcessGroupMCCL::all_reduce_now, py::arg("tensor"),
          py::arg("op") = c10d::ReduceOp(c10d::ReduceOp::SUM),
          py::call_guard<py::gil_scoped_release>(),
          "all_reduce in the order of the current stream, without a Work. In a loop of small calls "
          "on a GPU, this call takes the least host time.")
      .def("reduce_scatter_keeping", &ProcessGroupMCCL::reduce_scatter_keeping, py::arg("output"),
           py::arg("input"), py::arg("left_out"), py::arg("op"), py::arg("topk_ratio") = py::none(),
           py::call_guard<py::gil_scoped_release>(),
           "reduce_scatter_tensor that also fills left_out, of the input's shape. left_out and "
           "topk_ratio work as in all_reduce_keeping.")
      .def("bytes_to_sum", &ProcessGroupMCCL::bytes_to_sum, py::arg("tensor"),
           py::arg("topk_ratio") = py::none(),
           "The bytes of this rank's contribution to an all_reduce on the wire.")
      .def_property_readonly(
          "mem_allocator",
          [](const ProcessGroupMCCL&) {
            return py::module_::import("mccl.torch_memory").attr("allocator")();
          },
          "An allocator for torch.cuda.MemPool: GPU memory that other ranks' GPUs can access.")
      .def(
          "register_mem_pool",
          [](ProcessGroupMCCL& self, const py::object&, bool) {
            const auto* const gpus = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
            const py::gil_scoped_release without_gil;
            self.reach_memory(gpus->getDevice().index());
          },
          py::arg("pool") = py::none(), py::arg("symm") = false,
          "Must be called on all ranks. Collectives then access memory of mem_allocator on the "
          "current GPU without copying it. No later call of deregister_mem_pool is needed.")
      .def(
          "deregister_mem_pool", [](const ProcessGroupMCCL&, const py::object&) {},
          py::arg("pool") = py::none(), "No-op.")
      .def_property_readonly("members", &ProcessGroupMCCL::members,
                             "The group's ranks, as its context numbers them.")
      .def("get_error", &ProcessGroupMCCL::getError,
           "The kind of the group's failure, as an ErrorType; SUCCESS if it has not failed.")
      .def("_set_default_timeout", &ProcessGroupMCCL::setTimeout, py::arg("timeout"))
      // torch binds this property for each of its own backends, and split_group reads it.
      .def_property_readonly("options", [](ProcessGroupMCCL& self) {
        return c10::static_intrusive_pointer_cast<ProcessGroupMCCL::Options>(
            self.getBackendOptions());
      });

  using Options = ProcessGroupMCCL::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(backend, "Options")
      .def(
          py::init([](std::chrono::milliseconds timeout, std::optional<std::string> compression,
                      std::optional<double> topk_ratio) {
            auto options = c10::make_intrusive<Options>(timeout);
            options->compression = std::move(compression);
            options->topk_ratio = topk_ratio;
            return options;
          }),
          py::arg("timeout") = kBackendDefaultTimeout, py::kw_only(),
          py::arg("compression") = py::none(), py::arg("topk_ratio") = py::none(),
          "compression, topk_ratio: override the settings of the same names for this group's sums.")
      .def_readwrite("compression", &Options::compression)
      .def_readwrite("topk_ratio", &Options::topk_ratio)
      .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
      .def(
          "__deepcopy__",
          [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); },
          py::arg("memo"));

  module.def("create", &mccl_torch::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("name"), py::arg("global_ranks"), py::arg("members"),
             py::arg("settings"), py::arg("elsewhere"), py::arg("reconfigurable") = false);
  module.def("open_job_store", &mccl_torch::open_job_store, py::arg("settings"),
             "The store of the job that the settings and the environment describe.");
  module.def(
      "torch_ranks",
      [](const c10::intrusive_ptr<c10d::Store>& store) {
        mccl_torch::JobStore* const job = mccl_torch::job_store_in(store);
        return job ? job->torch_ranks() : -1;
      },
      py::arg("store"), py::call_guard<py::gil_scoped_release>(),
      "The number of ranks of the job that use torch; -1 if the store is torch's own.");
  module.def(
      "shutdown",
      [](std::chrono::milliseconds patience) {
        mccl_torch::shutdown_contexts();
        mccl_torch::close_job_stores();
        return mccl_torch::callback_threads().drain(patience);
      },
      py::arg("patience"), py::call_guard<py::gil_scoped_release>(),
      "Shuts down every context. Returns whether all callbacks ended within `patience`.");
  module.def("memory_functions", &mccl_torch::memory_functions,
             "The addresses of the functions that allocate and free GPU memory.");
  module.def("has_contexts", &mccl_torch::has_contexts, py::call_guard<py::gil_scoped_release>(),
             "Whether a process group of this backend exists, so that its settings are fixed.");
  module.def("resize_storage_of_mps", &mccl_torch::resize_storage, py::arg("storage"),
             py::arg("bytes"), "UntypedStorage.resize_ for MPS.");
  module.def("before_fork", &mccl_torch::before_fork);
  module.def("after_fork_in_parent", &mccl_torch::after_fork_in_parent);
  module.def("after_fork_in_child", &mccl_torch::after_fork_in_child);
}
