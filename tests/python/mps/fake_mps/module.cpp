// The Python module fake_mps; see gpu.h.
#include <ATen/detail/MPSHooksInterface.h>
#include <torch/csrc/utils/pybind.h>

#include <stdexcept>

#include "gpu.h"

namespace py = pybind11;

PYBIND11_MODULE(fake_mps, module) {
  if (at::detail::getMPSHooks().deviceCount() != 1) {
    throw std::runtime_error(
        "fake_mps: torch has looked for MPS before this was imported, and found none");
  }
  mccl::device::metal::replace_driver(fake_mps::gpu());
  module.def("set_shared", &fake_mps::set_shared, py::arg("shared"),
             "Whether buffers are shared with the host from now on, or private.");
  module.def("set_stream", &fake_mps::set_stream, py::arg("number"),
             "This thread's current stream; 0 is the default one.");
  module.def("violations", [] { return fake_mps::gpu()->violations(); });
  module.def(
      "hold", [](bool held) { fake_mps::gpu()->hold(held); }, py::arg("held"),
      "While held, the device does nothing.");
  module.def("counts", [] {
    const fake_mps::Counts now = fake_mps::counts();
    py::dict found;
    found["events"] = now.events;
    found["waits"] = now.waits;
    found["encoded"] = now.encoded;
    found["copies"] = now.copies;
    return found;
  });
  module.def(
      "host_address",
      [](const at::Tensor& tensor) {
        const auto memory = fake_mps::memory_of(tensor);
        return reinterpret_cast<std::uintptr_t>(fake_mps::gpu()->contents(memory.get()));
      },
      py::arg("tensor"), "Where the host sees the buffer; 0 where it does not.");
}
