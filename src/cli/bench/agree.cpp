#include "cli/bench/agree.h"

namespace mccl::cli::bench {

std::uint64_t value_of_first(Group& group, std::uint64_t value) {
  group.broadcast({&value, 1, DType::u64, {}}, 0, kBlocking).wait();
  return value;
}

double largest(Group& group, double value) {
  const Buffer buffer{&value, 1, DType::f64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::max, kBlocking).wait();
  return value;
}

std::uint64_t sum(Group& group, std::uint64_t value) {
  const Buffer buffer{&value, 1, DType::u64, {}};
  group.all_reduce(buffer, buffer, ReduceKind::sum, kBlocking).wait();
  return value;
}

void meet(Group& group) { group.barrier(kBlocking).wait(); }

}  // namespace mccl::cli::bench
