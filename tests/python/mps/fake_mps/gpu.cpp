#include "gpu.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

namespace fake_mps {
namespace {

std::atomic<bool> shared{true};
std::atomic<std::uint64_t> events{0};
std::atomic<std::uint64_t> waits{0};
std::atomic<std::uint64_t> encoded{0};

c10::Device device() { return {c10::DeviceType::MPS, 0}; }
c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }

std::atomic<std::size_t> buffers{0};  // allocated by torch and not yet freed
thread_local c10::StreamId current_stream = 0;

void forget(void* buffer) {
  if (buffer) --buffers;
  gpu()->forget(buffer);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, device()};
    void* const buffer = gpu()->make(bytes, shared).get();
    ++buffers;
    return {buffer, buffer, &forget, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &forget; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {
    TORCH_CHECK(false, "fake_mps: the host copies memory of the device");
  }
};

/// Streams differ only in their number. All work is given to the default stream.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::DeviceType::MPS;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device(), current_stream);
  }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  // Events are recorded and awaited on the same stream only, so they need no state.
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = const_cast<Guard*>(this);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeDevice(c10::DeviceIndex) const override {
    ++waits;
    gpu()->finish();
  }
};

}  // namespace

/// torch finds the hooks by the name of this class.
struct MPSHooks final : at::MPSHooksInterface {
  /// Torch 2.11 passes an at::MPSHooksArgs, torch 2.15 passes nothing.
  template <typename... Nothing>
  explicit MPSHooks(const Nothing&...) {}

  void init() const override {}
  bool hasMPS() const override { return true; }
  bool isOnMacOSorNewer(unsigned, unsigned) const override { return true; }
  std::size_t getCurrentAllocatedMemory() const override { return buffers; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }

  void deviceSynchronize() const override {
    require_thread_of_caller("a wait for the device");
    ++waits;
    gpu()->finish();
  }
  void commitStream() const override {
    require_thread_of_caller("a commit");
    gpu()->commit();
  }
  std::uint32_t acquireEvent(bool) const override {
    const std::lock_guard lock(mutex_);
    in_use_[++last_] = 0;
    return last_;
  }
  void releaseEvent(std::uint32_t event) const override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(in_use_.erase(event) == 1, "fake_mps: no event ", event);
  }
  void recordEvent(std::uint32_t event) const override {
    require_thread_of_caller("the recording of an event");
    ++events;
    const std::uint64_t here = gpu()->mark();
    const std::lock_guard lock(mutex_);
    in_use_.at(event) = here;
  }
  bool queryEvent(std::uint32_t event) const override { return gpu()->passed(place_of(event)); }
  void synchronizeEvent(std::uint32_t event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  void waitForEvent(std::uint32_t) const override {}

 private:
  std::uint64_t place_of(std::uint32_t event) const {
    const std::lock_guard lock(mutex_);
    return in_use_.at(event);
  }

  mutable std::mutex mutex_;
  mutable std::uint32_t last_ = 0;                         // guarded by mutex_
  mutable std::map<std::uint32_t, std::uint64_t> in_use_;  // guarded by mutex_
};

const std::shared_ptr<MetalDouble>& gpu() {
  static auto* const instance = new std::shared_ptr<MetalDouble>(std::make_shared<MetalDouble>());
  return *instance;
}

void set_stream(std::int64_t number) { current_stream = number; }

void set_shared(bool now) { shared = now; }

MetalDouble::MemoryPtr memory_of(const at::Tensor& tensor) {
  void* const buffer = tensor.storage().mutable_data();
  if (!buffer) return nullptr;
  auto memory = gpu()->find(buffer);
  TORCH_CHECK(memory, "fake_mps: a tensor whose memory is gone");
  return memory;
}

void require_thread_of_caller(const char* what) {
  char name[16] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof(name));
  const std::string_view text(name);
  if (text.starts_with("mccl")) {
    gpu()->record(std::string(what) + " by the library's thread \"" + name + "\"");
  }
}

Counts counts() { return {events, waits, encoded, gpu()->copies()}; }

void count_encoded() { ++encoded; }

namespace {

std::optional<c10::DeviceType> mps_as_accelerator(bool /*checked*/) { return c10::DeviceType::MPS; }

/// Makes every call of the function at `from` jump to the one at `to`.
void redirect(void* from, void* to) {
#if defined(__x86_64__)
  unsigned char jump[] = {0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0};  // mov rax, to; jmp rax
  std::memcpy(jump + 2, &to, sizeof(to));
#elif defined(__aarch64__)
  unsigned char jump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1F, 0xD6,  // ldr x16, to; br x16
                          0,    0, 0, 0,    0, 0, 0,    0};
  std::memcpy(jump + 8, &to, sizeof(to));
#endif
  const std::uintptr_t page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<std::uintptr_t>(from);
  void* const first = reinterpret_cast<void*>(at / page * page);
  const std::size_t bytes = (at + sizeof(jump) + page - 1) / page * page - at / page * page;
  TORCH_CHECK(::mprotect(first, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0,
              "fake_mps: a function of torch's cannot be redirected");
  std::memcpy(from, jump, sizeof(jump));
  __builtin___clear_cache(static_cast<char*>(from), static_cast<char*>(from) + sizeof(jump));
  ::mprotect(first, bytes, PROT_READ | PROT_EXEC);
}

/// Autograd requests the accelerator's streams. A torch built for CUDA takes CUDA for the
/// accelerator, even without a GPU. A torch built for Macs takes MPS, and this torch must do the
/// same.
[[maybe_unused]] const bool is_accelerator = [] {
  redirect(reinterpret_cast<void*>(&at::accelerator::getAccelerator),
           reinterpret_cast<void*>(&mps_as_accelerator));
  return true;
}();

Allocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::MPS, &allocator)
C10_REGISTER_GUARD_IMPL(MPS, Guard)

}  // namespace
}  // namespace fake_mps

namespace at {
using fake_mps::MPSHooks;
REGISTER_MPS_HOOKS(MPSHooks)
}  // namespace at
