// Sums a vector over all processes. Start one process per rank, in two terminals:
//   MCCL_RANK=0 MCCL_WORLD_SIZE=2 MCCL_ROOT=127.0.0.1:29700 ./all_reduce
//   MCCL_RANK=1 MCCL_WORLD_SIZE=2 MCCL_ROOT=127.0.0.1:29700 ./all_reduce
#include <iostream>
#include <vector>

#include "mccl/mccl.h"

int main() {
  try {
    const auto context = mccl::Context::from_environment();
    const auto world = context->world();

    std::vector<float> values(1000, static_cast<float>(context->rank() + 1));
    const mccl::Buffer buffer{values.data(), values.size(), mccl::DType::f32};
    world->all_reduce(buffer, buffer, mccl::ReduceKind::sum).wait();

    std::cout << "rank " << context->rank() << " of " << context->size() << ": sum "
              << values.front() << "\n";
    world->barrier().wait();
    return 0;
  } catch (const mccl::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
