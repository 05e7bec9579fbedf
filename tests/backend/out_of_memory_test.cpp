// Memory that runs out at one place, in one process. A sanitizer has allocations of its own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "support/processes.h"

namespace {

/// Allocations of this size fail, as if memory had run out; 0: none.
std::atomic<std::size_t> failing_size{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (bytes != 0 && bytes == failing_size.load(std::memory_order_relaxed)) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace mccl {
namespace {

using testing::Processes;
using testing::test_config;

/// A peer's word of a failed group is too long for the memory that is left here.
TEST(OutOfMemory, BesideTheDataEndsTheGroupsAndNotTheProcess) {
  constexpr std::size_t kReason = 1777;
  Processes job(2,
                [](Context& context, const Processes::Say& say) {
                  const auto doomed = context.group("doomed", {0, 1}, std::chrono::seconds(30));
                  context.world()->barrier().wait();
                  if (context.rank() == 0) {
                    char token = 0;
                    context.world()->recv({&token, 1, DType::u8}, 1, 0).wait();
                    doomed->abort(std::string(kReason, 'x'));
                    while (context.world()->failure().empty()) std::this_thread::yield();
                  } else {
                    const std::string text = "rank 0 aborted it: " + std::string(kReason, 'x');
                    failing_size = text.size() + 1;
                    char token = 0;
                    context.world()->send({&token, 1, DType::u8}, 0, 0).wait();
                    while (context.world()->failure().empty()) std::this_thread::yield();
                    failing_size = 0;
                  }
                  say(context.world()->failure());
                },
                {.store_address = {},
                 .config_of =
                     [](int) {
                       Config config = test_config();
                       config.log_level = "OFF";
                       return config;
                     },
                 .enter = {}});
  for (const int rank : {0, 1}) {
    const std::string said = job.line(rank);
    EXPECT_NE(said.find("out of memory"), std::string::npos) << said;
    EXPECT_NE(said.find("rank 1"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace mccl
#endif
