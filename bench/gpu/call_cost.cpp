// Measures the CPU time that MCCL itself needs for a call on GPU memory. The simulated device does
// nothing, but counts the operations on its queues. On a real device, each operation would add a
// driver call of about a microsecond.
//
//   mccl_call_cost
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "backend/native/group.h"
#include "device/registry.h"
#include "mccl/mccl.h"

namespace {

using mccl::device::Word;

enum What {
  follow_,
  to_host,
  to_device,
  write_,
  await_,
  mark_,
  lead_,
  queue,
  pinned,
  objection_,
  capturing,
  launch,
  kWhats
};
constexpr const char* kNames[kWhats] = {
    "follow", "copy to host", "copy to device",  "write",     "await",        "mark",
    "lead",   "make queue",   "allocate pinned", "objection", "is capturing", "launch"};
std::array<int, kWhats> asked{};

class NoQueue final : public mccl::device::Queue {
 public:
  void follow(void*) override { ++asked[follow_]; }
  void copy_to_host(void*, const void*, std::size_t) override { ++asked[to_host]; }
  void copy_to_device(void*, const void*, std::size_t) override { ++asked[to_device]; }
  void write(Word* word, Word value) override {
    ++asked[write_];
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  void await(const Word*, Word) override { ++asked[await_]; }
  void mark() override { ++asked[mark_]; }
  void lead(void*) override { ++asked[lead_]; }
  void* handle() override { return this; }
};

class NoDevice final : public mccl::device::Accelerator {
 public:
  const std::string& name() const override { return name_; }
  std::string bus() const override { return "none"; }
  std::unique_ptr<mccl::device::Queue> make_queue() override {
    ++asked[queue];
    return std::make_unique<NoQueue>();
  }
  std::shared_ptr<void> make_memory(std::size_t bytes) override {
    return {::operator new(bytes), [](void* memory) { ::operator delete(memory); }};
  }
  void finish() override {}
  std::byte* allocate_pinned(std::size_t bytes) override {
    ++asked[pinned];
    return static_cast<std::byte*>(::operator new(bytes, std::align_val_t(4096)));
  }
  void free_pinned(std::byte* memory) noexcept override {
    ::operator delete(memory, std::align_val_t(4096));
  }
  std::string objection(const mccl::ConstBuffer&) const override {
    ++asked[objection_];
    return {};
  }
  bool is_capturing(void*) const override {
    ++asked[capturing];
    return false;
  }

 private:
  const std::string name_ = "none:0";
};

class NoPath final : public mccl::direct::Path {
 public:
  NoPath() : queue_(mccl::device::depot_of({mccl::DeviceKind::cuda, 0})) { order_by(queue_); }
  bool takes(const mccl::Request&) override { return true; }
  void enqueue(const mccl::Request&, void*) override { ++asked[launch]; }
  std::string failure() override { return {}; }

 private:
  void end_calls() noexcept override {}

  mccl::device::SerialQueue queue_;
};

/// Prints the median time per call over batches, and the number of device operations per call.
template <typename Call>
void print_times(const char* name, const Call& call) {
  constexpr int kCalls = 1000;
  for (int i = 0; i < kCalls; ++i) call();
  std::array<double, 15> times{};
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
               .count() /
           kCalls;
  }
  std::sort(times.begin(), times.end());
  asked.fill(0);
  call();
  std::printf("%-34s %7.2f us   ", name, times[times.size() / 2]);
  for (int what = 0; what < kWhats; ++what) {
    if (asked[what] > 0) std::printf(" %s %d;", kNames[what], asked[what]);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  mccl::device::replace_maker(mccl::DeviceKind::cuda,
                              [](int) { return std::make_shared<NoDevice>(); });
  mccl::Config config;
  config.port_base = 0;
  config.log_level = "ERROR";
  const auto context = mccl::Context::create({0, 1, mccl::make_memory_store(), config, nullptr});
  auto& world = dynamic_cast<mccl::native::NativeGroup&>(*context->world());
  const auto staged = context->group("staged", {0}, std::chrono::seconds(60));
  world.use(std::make_shared<NoPath>());
  std::vector<float> memory(256);
  const mccl::Buffer data{
      memory.data(), memory.size(), mccl::DType::f32, {mccl::DeviceKind::cuda, 0}};
  int stream = 0;
  print_times("direct, in the caller's stream", [&] {
    world.all_reduce(data, data, mccl::ReduceKind::sum, {.caller_waits = true, .stream = &stream});
  });
  print_times("direct, in another stream, waited for", [&] {
    world.all_reduce(data, data, mccl::ReduceKind::sum, {.stream = &stream}).wait();
  });
  print_times("through the host, waited for", [&] {
    staged->all_reduce(data, data, mccl::ReduceKind::sum, {.stream = &stream}).wait();
  });
  return 0;
}
