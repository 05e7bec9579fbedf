#include "transport/rdma/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace mccl::transport::rdma {
namespace {

/// Numbers of berths (areas for the slots of one link) per region. The first region holds
/// kFirstBerths. Each further region holds twice as many as the previous one, up to kMostBerths, or
/// fewer if the limit on locked memory does not allow that many.
constexpr std::size_t kFirstBerths = 2;
constexpr std::size_t kMostBerths = 64;

std::byte* map_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(fmt::format("no memory for {} bytes of slots: {}", bytes, describe_code(errno)));
#ifdef MADV_DONTFORK
  // Excludes the memory from a fork: copy-on-write could otherwise give the parent new pages while
  // the device still writes to the old ones.
  (void)::madvise(memory, bytes, MADV_DONTFORK);
#endif
  return static_cast<std::byte*>(memory);
}

/// Half of the memory that this process may lock; the other half is left for slots.
std::size_t lockable_bytes() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(limit.rlim_cur) / 2;
}

}  // namespace

Berth::~Berth() {
  if (owner_) owner_->give_back(region_, memory_.data());
}

void SlotMemory::Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

SlotMemory::SlotMemory(VerbsContext& context, std::size_t berth_bytes, std::size_t most_regions)
    : context_(context), berth_bytes_(berth_bytes), most_regions_(most_regions) {}

Berth SlotMemory::take() {
  const std::lock_guard lock(mutex_);
  auto slab = std::find_if(slabs_.begin(), slabs_.end(), [](auto& s) { return !s.free.empty(); });
  if (slab == slabs_.end()) {
    add_slab();
    slab = slabs_.end() - 1;
  }
  const std::size_t offset = slab->free.back();
  slab->free.pop_back();
  ++slab->used;
  return {*this,
          static_cast<std::size_t>(slab - slabs_.begin()),
          {slab->memory.get() + offset, berth_bytes_},
          slab->region->key()};
}

void SlotMemory::add_slab() {
  if (slabs_.size() >= most_regions_) {
    throw Error(fmt::format(
        "all {} regions of memory that one process may register with a device are in use",
        most_regions_));
  }
  for (std::size_t berths = std::min(kFirstBerths << slabs_.size(), kMostBerths);; berths /= 2) {
    const std::size_t bytes = berths * berth_bytes_;
    Slab slab;
    slab.memory = {map_memory(bytes), Unmap{bytes}};
    try {
      slab.region = context_.register_memory({slab.memory.get(), bytes}, Access::write);
    } catch (const VerbsError& error) {
      if (error.code() != ENOMEM && error.code() != EAGAIN) throw;
      if (berths > 1) continue;
      throw Error(fmt::format("{}; can this process lock {} KiB more memory (ulimit -l)?",
                              error.what(), bytes / 1024));
    }
    for (std::size_t i = berths; i-- > 0;) slab.free.push_back(i * berth_bytes_);
    slabs_.push_back(std::move(slab));
    return;
  }
}

void SlotMemory::give_back(std::size_t region, const std::byte* memory) {
  const std::lock_guard lock(mutex_);
  Slab& slab = slabs_[region];
  slab.free.push_back(static_cast<std::size_t>(memory - slab.memory.get()));
  --slab.used;
}

std::size_t SlotMemory::regions() const {
  const std::lock_guard lock(mutex_);
  return slabs_.size();
}

std::size_t SlotMemory::berths_in_use() const {
  const std::lock_guard lock(mutex_);
  std::size_t used = 0;
  for (const Slab& slab : slabs_) used += slab.used;
  return used;
}

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
      return std::make_unique<Loan>(*this, context_.register_memory(memory, Access::read), memory);
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
