#include "transport/rdma/loans.h"

#include <sys/resource.h>

#include <limits>

namespace mccl::transport::rdma {
namespace {

/// Half of the memory that this process may lock; the other half is left for slots.
std::size_t lockable_bytes() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(limit.rlim_cur) / 2;
}

}  // namespace

Loan::~Loan() {
  region_.reset();
  owner_.give_back(bytes_);
}

std::unique_ptr<Loan> Loans::take(std::span<const std::byte> memory) {
  if (memory.size() < kLeast || refusals_ >= kMostRefusals) return nullptr;
  static const std::size_t lockable = lockable_bytes();
  const bool room = count_.fetch_add(1) < most_;
  const std::size_t before = bytes_.fetch_add(memory.size());
  if (room && before <= lockable && memory.size() <= lockable - before) {
    try {
      return std::make_unique<Loan>(*this, domain_.register_to_send(memory), memory);
    } catch (const VerbsError&) {
      ++refusals_;  // For example, memory that cannot be locked.
    }
  }
  give_back(memory.size());
  return nullptr;
}

void Loans::give_back(std::size_t bytes) {
  bytes_.fetch_sub(bytes);
  count_.fetch_sub(1);
}

}  // namespace mccl::transport::rdma
