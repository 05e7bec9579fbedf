// A rank that sums without end. When a rank dies, it meets the replacement, prints the sum of a one
// of each rank, and ends. A replacement has an argument, and does only the latter.
#include <mccl/context.h>
#include <mccl/error.h>

#include <chrono>
#include <cstdio>
#include <memory>

namespace {

int count_ranks(mccl::Context& context) {
  int value = 1;
  const mccl::Buffer buffer{&value, 1, mccl::DType::i32};
  context.world()->all_reduce(buffer, buffer, mccl::ReduceKind::sum).wait();
  return value;
}

}  // namespace

int main(int count, char**) {
  std::shared_ptr<mccl::Context> context = mccl::Context::from_environment();
  try {
    count_ranks(*context);
    std::puts("begun");
    std::fflush(stdout);
    while (count == 1) count_ranks(*context);
  } catch (const mccl::PeerError&) {
    context = context->reconfigure(std::chrono::seconds(30));
    count_ranks(*context);
  }
  std::printf("%d ranks\n", count_ranks(*context));
}
