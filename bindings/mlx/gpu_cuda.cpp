#include <mlx/backend/cuda/cuda.h>
#include <mlx/backend/cuda/device.h>
#include <mlx/backend/cuda/utils.h>

#include "arrays.h"
#include "gpu.h"
#include "mccl/device_memory.h"

namespace mccl_mlx::gpu {
namespace {

/// Ends the capture of a stream when constructed, and begins a new capture when destroyed. No
/// recorded work is lost, because MLX's current operation has not recorded anything yet. The new
/// capture is needed because MLX ends a capture after its current operation.
class Interruption {
 public:
  explicit Interruption(void* stream) : stream_(stream), interrupted_(mccl::drop_capture(stream)) {}
  ~Interruption() {
    if (interrupted_) mccl::begin_capture(stream_);
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  void* const stream_;
  const bool interrupted_;
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
  const Interruption interruption(raw);
  encoder.commit();
  return start(raw);
}

}  // namespace mccl_mlx::gpu
