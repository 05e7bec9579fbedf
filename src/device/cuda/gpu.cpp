#include "device/cuda/gpu.h"

#include <fmt/format.h>

#include "mccl/error.h"

namespace mccl::device::cuda {
namespace {

// Values of constants in cuda.h.
constexpr unsigned kNonBlocking = 1;         // CU_STREAM_NON_BLOCKING
constexpr unsigned kWithoutTiming = 2;       // CU_EVENT_DISABLE_TIMING
constexpr unsigned kPortableMapped = 1 | 2;  // CU_MEMHOSTALLOC_PORTABLE, _DEVICEMAP
constexpr unsigned kAtLeast = 0;             // CU_STREAM_WAIT_VALUE_GEQ
constexpr int kMemoryType = 2;               // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceOrdinal = 9;            // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kDeviceMemory = 2;        // CU_MEMORYTYPE_DEVICE

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }
Stream stream_of(void* handle) { return static_cast<Stream>(handle); }

class GpuQueue final : public Queue {
 public:
  GpuQueue(const CudaDriver& cu, Context context) : cu_(cu), context_(context) {
    const Current current(cu_, context_);
    cu_.check(cu_.StreamCreate(&stream_, kNonBlocking), "cuStreamCreate");
    cu_.check(cu_.EventCreate(&begun_, kWithoutTiming), "cuEventCreate");
    cu_.check(cu_.EventCreate(&marked_, kWithoutTiming), "cuEventCreate");
  }

  ~GpuQueue() override {
    cu_.EventDestroy(marked_);
    cu_.EventDestroy(begun_);
    cu_.StreamDestroy(stream_);
  }

  void follow(void* stream) override {
    const Current current(cu_, context_);
    cu_.check(cu_.EventRecord(begun_, stream_of(stream)), "cuEventRecord");
    cu_.check(cu_.StreamWaitEvent(stream_, begun_, 0), "cuStreamWaitEvent");
  }

  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    const Current current(cu_, context_);
    cu_.check(cu_.MemcpyDtoHAsync(to, address(from), bytes, stream_), "cuMemcpyDtoHAsync");
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    const Current current(cu_, context_);
    cu_.check(cu_.MemcpyHtoDAsync(address(to), from, bytes, stream_), "cuMemcpyHtoDAsync");
  }

  void write(Word* word, Word value) override {
    const Current current(cu_, context_);
    cu_.check(cu_.StreamWriteValue32(stream_, address(word), value, 0), "cuStreamWriteValue32");
  }

  void await(const Word* word, Word value) override {
    const Current current(cu_, context_);
    cu_.check(cu_.StreamWaitValue32(stream_, address(word), value, kAtLeast),
              "cuStreamWaitValue32");
  }

  void mark() override {
    const Current current(cu_, context_);
    cu_.check(cu_.EventRecord(marked_, stream_), "cuEventRecord");
  }

  void lead(void* stream) override {
    const Current current(cu_, context_);
    cu_.check(cu_.StreamWaitEvent(stream_of(stream), marked_, 0), "cuStreamWaitEvent");
  }

  void* handle() override { return stream_; }

 private:
  const CudaDriver& cu_;
  const Context context_;
  Stream stream_ = nullptr;
  Event begun_ = nullptr;
  Event marked_ = nullptr;
};

class CudaGpu final : public Accelerator {
 public:
  explicit CudaGpu(int index) : cu_(driver()), index_(index), context_(context_of(index)) {
    int device = 0;
    char model[128] = {};
    cu_.check(cu_.DeviceGet(&device, index), "cuDeviceGet");
    cu_.check(cu_.DeviceGetName(model, sizeof(model), device), "cuDeviceGetName");
    name_ = fmt::format("{} ({})", name_of({DeviceKind::cuda, index}), model);
  }

  const std::string& name() const override { return name_; }

  std::string bus() const override {
    char id[16] = {};
    int device = 0;
    cu_.check(cu_.DeviceGet(&device, index_), "cuDeviceGet");
    cu_.check(cu_.DeviceGetPCIBusId(id, sizeof(id), device), "cuDeviceGetPCIBusId");
    return id;
  }

  std::shared_ptr<void> make_memory(std::size_t bytes) override {
    const Current current(cu_, context_);
    Address memory = 0;
    cu_.check(cu_.MemAlloc(&memory, bytes), "cuMemAlloc");
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
    return {reinterpret_cast<void*>(memory), [&cu = cu_, context = context_, memory](void*) {
              const Current while_freed(cu, context);
              cu.MemFree(memory);
            }};
  }

  std::unique_ptr<Queue> make_queue() override { return std::make_unique<GpuQueue>(cu_, context_); }

  void finish() override {
    const Current current(cu_, context_);
    cu_.check(cu_.CtxSynchronize(), "cuCtxSynchronize");
  }

  std::byte* allocate_pinned(std::size_t bytes) override {
    const Current current(cu_, context_);
    void* memory = nullptr;
    if (const Result result = cu_.MemHostAlloc(&memory, bytes, kPortableMapped); result != 0) {
      try {
        cu_.check(result, "cuMemHostAlloc");
      } catch (const Error& error) {
        throw Error(
            fmt::format("{}: cannot allocate {} bytes of pinned host memory to stage a call: {}; "
                        "check ulimit -l and the free memory",
                        name_, bytes, error.what()));
      }
    }
    return static_cast<std::byte*>(memory);
  }

  void free_pinned(std::byte* memory) noexcept override { cu_.MemFreeHost(memory); }

  std::string objection(const ConstBuffer& memory) const override {
    if (memory.count == 0) return {};
    const Current current(cu_, context_);
    unsigned type = 0;
    int ordinal = -1;
    if (cu_.PointerGetAttribute(&type, kMemoryType, address(memory.data)) != 0 ||
        type != kDeviceMemory) {
      return fmt::format("is declared to be on {}, but is on no GPU", name_);
    }
    cu_.check(cu_.PointerGetAttribute(&ordinal, kDeviceOrdinal, address(memory.data)),
              "cuPointerGetAttribute");
    if (ordinal == index_) return {};
    return fmt::format("is declared to be on {}, but is on {}", name_,
                       name_of({DeviceKind::cuda, ordinal}));
  }

  bool is_capturing(void* stream) const override {
    const Current current(cu_, context_);
    int status = 0;
    return cu_.StreamIsCapturing(stream_of(stream), &status) != 0 || status != 0;
  }

 private:
  const CudaDriver& cu_;
  const int index_;
  const Context context_;
  std::string name_;
};

}  // namespace

Context context_of(int index) {
  const CudaDriver& cu = driver();
  if (index < 0 || index >= cu.devices) {
    throw InvalidArgument(
        fmt::format("there is no {}: this process sees {} GPUs, with numbers 0 to {} (see "
                    "CUDA_VISIBLE_DEVICES)",
                    name_of({DeviceKind::cuda, index}), cu.devices, cu.devices - 1));
  }
  int device = 0;
  Context context = nullptr;
  cu.check(cu.DeviceGet(&device, index), "cuDeviceGet");
  cu.check(cu.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

std::shared_ptr<Accelerator> open_gpu(int index) { return std::make_shared<CudaGpu>(index); }

}  // namespace mccl::device::cuda
