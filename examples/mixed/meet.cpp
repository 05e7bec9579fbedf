// A rank in C++ for the example meet.py.
#include <iostream>
#include <string_view>
#include <vector>

#include "mccl/mccl.h"

namespace {

mccl::Buffer buffer(std::vector<float>& values) {
  return {values.data(), values.size(), mccl::DType::f32};
}

// Prints the values in the format of a Python list.
void print(std::string_view name, const std::vector<float>& values) {
  std::cout << name;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::cout << (i == 0 ? " [" : ", ") << values[i] << ".0";
  }
  std::cout << "]";
}

}  // namespace

int main() {
  try {
    const auto context = mccl::Context::from_environment();
    const auto world = context->world();
    const auto rank = static_cast<float>(world->rank());

    std::vector<float> total = {1 * (rank + 1), 2 * (rank + 1), 3 * (rank + 1), 4 * (rank + 1)};
    world->all_reduce(buffer(total), buffer(total), mccl::ReduceKind::sum).wait();
    std::vector<float> sent(4, rank + 7);
    world->broadcast(buffer(sent), 0).wait();
    std::vector<float> mine = {rank};
    std::vector<float> ranks(static_cast<std::size_t>(world->size()));
    world->all_gather(buffer(mine), buffer(ranks)).wait();
    world->barrier().wait();

    std::cout << "rank " << world->rank() << ", cpp: ";
    print("sum", total);
    print(", from rank 0", sent);
    print(", ranks", ranks);
    std::cout << std::endl;
    return 0;
  } catch (const mccl::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
