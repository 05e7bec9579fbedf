#include <mlx/backend/cuda/cuda.h>
#include <mlx/backend/cuda/device.h>
#include <mlx/backend/cuda/utils.h>

#include "arrays.h"
#include "device/cuda/driver.h"
#include "gpu.h"

namespace mccl_mlx::gpu {
namespace {

namespace cuda = mccl::device::cuda;

/// Value of CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: the capture neither records nor forbids the work
/// of other threads.
constexpr int kThreadLocal = 1;

/// Interrupts the capture of a stream during its lifetime. MLX ends the capture after its
/// operation.
class Interruption {
 public:
  explicit Interruption(cuda::Stream stream) : cu_(cuda::driver()), stream_(stream) {
    int status = 0;
    cu_.check(cu_.StreamIsCapturing(stream_, &status), "cuStreamIsCapturing");
    interrupted_ = status != 0;
    if (!interrupted_) return;
    cuda::Graph graph = nullptr;
    cu_.check(cu_.StreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    // The operation has not recorded anything yet.
    if (graph) cu_.GraphDestroy(graph);
  }
  ~Interruption() {
    if (interrupted_) cu_.StreamBeginCapture(stream_, kThreadLocal);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  const cuda::Driver& cu_;
  const cuda::Stream stream_;
  bool interrupted_ = false;
};

}  // namespace

bool is_available() { return mx::cu::is_available(); }

mccl::Buffer buffer_of(const mx::array& array, mx::Stream stream) {
  if (array.size() == 0) return {nullptr, 0, dtype_of(array.dtype())};
  const int index = mx::cu::get_command_encoder(stream).device().cuda_device();
  return {mx::gpu_ptr<char>(const_cast<mx::array&>(array)),
          array.size(),
          dtype_of(array.dtype()),
          {mccl::DeviceKind::cuda, index}};
}

mccl::Work run(mx::Stream stream, const std::function<mccl::Work(void*)>& start) {
  mx::cu::CommandEncoder& encoder = mx::cu::get_command_encoder(stream);
  const cudaStream_t raw = encoder.stream();
  const Interruption interruption(reinterpret_cast<cuda::Stream>(raw));
  encoder.commit();
  return start(raw);
}

}  // namespace mccl_mlx::gpu
