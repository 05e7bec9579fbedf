#include "transport/rdma/device/device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "base/fork.h"
#include "transport/rdma/pair/message.h"

namespace mccl::transport::rdma {
namespace {

/// The devices of this process that are open or closing. The key contains the process id because a
/// child of a fork must not use its parent's devices.
struct Open {
  using Key = std::tuple<const Verbs*, std::string, pid_t>;
  struct Entry {
    const VerbsDevice* device = nullptr;
    std::weak_ptr<VerbsDevice> used;  ///< Expired while the device closes.
  };
  std::mutex mutex;
  std::map<Key, Entry> devices;  ///< Guarded by `mutex`.
};

std::mutex& mutex_of_open_devices();

/// Never destroyed, because devices may outlive static objects.
Open& open_devices() {
  static Open* const open = [] {
    hold_while_forking<mutex_of_open_devices>();
    return new Open;
  }();
  return *open;
}

std::mutex& mutex_of_open_devices() { return open_devices().mutex; }

/// Deleter of a device, run when the last user releases it. Closes the device and then removes its
/// entry from the table, so that no other thread opens the device before it has closed.
struct Close {
  Open::Key key;
  void operator()(VerbsDevice* device) const {
    Open& open = open_devices();
    const std::lock_guard lock(open.mutex);
    const auto entry = open.devices.find(key);
    const bool is_latest = entry != open.devices.end() && entry->second.device == device;
    delete device;
    if (is_latest) open.devices.erase(key);
  }
};

/// Interval between attempts to open a device that is being closed.
constexpr std::chrono::milliseconds kWhileItCloses{1};

std::size_t regions_of(const RegionLimits& limits) {
  if (limits.regions <= 0) return VerbsDevice::kMostRegions;
  return std::min(VerbsDevice::kMostRegions, static_cast<std::size_t>(limits.regions));
}

/// Numbers of berths (areas for the slots of one link) per region. The first region holds
/// kFirstBerths. Each further region holds twice as many as the previous one, up to kMostBerths, or
/// fewer if the limit on locked memory does not allow that many.
constexpr std::size_t kFirstBerths = 2;
constexpr std::size_t kMostBerths = 64;

std::byte* map_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(
        fmt::format("cannot allocate {} bytes for message slots: {}", bytes, describe_code(errno)));
#ifdef MADV_DONTFORK
  // Excludes the memory from a fork: copy-on-write could otherwise give the parent new pages while
  // the device still writes to the old pages.
  (void)::madvise(memory, bytes, MADV_DONTFORK);
#endif
  return static_cast<std::byte*>(memory);
}

/// Returns the maximum total size in bytes of the memory that loans register: half of the memory
/// that this process may lock. The other half is left for slots.
std::size_t lockable_bytes() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(limit.rlim_cur) / 2;
}

}  // namespace

std::shared_ptr<VerbsDevice> VerbsDevice::open(const std::shared_ptr<Verbs>& verbs,
                                               const std::string& name) {
  Open& open = open_devices();
  const Open::Key key{verbs.get(), name, ::getpid()};
  for (;; std::this_thread::sleep_for(kWhileItCloses)) {
    // `known` is declared before `lock`, so it is destroyed after `lock` has been released. This
    // order is necessary because the deleter (Close) locks the same mutex.
    std::shared_ptr<VerbsDevice> known;
    const std::lock_guard lock(open.mutex);
    if (const auto entry = open.devices.find(key); entry != open.devices.end()) {
      known = entry->second.used.lock();
      if (!known) continue;
      if (!known->failed()) return known;
    }
    std::shared_ptr<VerbsDevice> device(new VerbsDevice(verbs, name), Close{key});
    open.devices[key] = {device.get(), device};
    return device;
  }
}

VerbsDevice::VerbsDevice(std::shared_ptr<Verbs> verbs, std::string name)
    : verbs_(std::move(verbs)), name_(std::move(name)), context_(verbs_->open(name_)) {
  limits_ = context_->limits();
  const std::size_t regions = regions_of(limits_);
  const std::size_t loans = limits_.lends && regions >= 2 * kMostLoans ? kMostLoans : 0;
  slots_ = std::make_unique<SlotMemory>(*context_, kBerthBytes, regions - loans);
  loans_ = std::make_unique<Loans>(*context_, loans);
}

VerbsDevice::~VerbsDevice() = default;

std::string VerbsDevice::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void VerbsDevice::fail(const std::string& why) {
  if (trouble_.empty()) trouble_ = fmt::format("device {}: {}", name_, why);
  failed_.store(true, std::memory_order_release);
}

void VerbsDevice::look() {
  const std::lock_guard lock(mutex_);
  while (!failed()) {
    const std::optional<DeviceEvent> event = context_->next_event();
    if (!event) return;
    const bool port =
        event->kind == DeviceEvent::Kind::port_down && (ports_.load() & bit_of(event->port)) != 0;
    if (port || event->kind == DeviceEvent::Kind::device_gone) fail(event->text);
    if (event->kind == DeviceEvent::Kind::pair_failed) {
      failed_pairs_.emplace(event->pair, fmt::format("device {}: {}", name_, event->text));
      any_pair_failed_.store(true, std::memory_order_release);
    }
  }
}

std::string VerbsDevice::trouble_of_pair(std::uint32_t number) const {
  if (!any_pair_failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  const auto found = failed_pairs_.find(number);
  return found == failed_pairs_.end() ? std::string() : found->second;
}

void VerbsDevice::forget_pair(std::uint32_t number) {
  if (!any_pair_failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  failed_pairs_.erase(number);
}

void Berth::GiveBack::operator()(const std::byte* memory) const {
  owner->give_back(region, memory);
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
      throw Error(fmt::format("{}; let this process lock at least {} KiB more memory (ulimit -l)",
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
      ++refusals_;  // Counted, because memory of some types can never be registered.
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
