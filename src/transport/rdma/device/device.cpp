#include "transport/rdma/device/device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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
    const Device* device = nullptr;
    std::weak_ptr<Device> used;  ///< Expired while the device closes.
  };
  std::mutex mutex;
  std::map<Key, Entry> devices;  // guarded by mutex
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
  void operator()(Device* device) const {
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

std::size_t regions_of(const Limits& limits) {
  if (limits.regions <= 0) return Device::kMostRegions;
  return std::min(Device::kMostRegions, static_cast<std::size_t>(limits.regions));
}

}  // namespace

std::shared_ptr<Device> Device::open(const std::shared_ptr<Verbs>& verbs, const std::string& name) {
  Open& open = open_devices();
  const Open::Key key{verbs.get(), name, ::getpid()};
  for (;; std::this_thread::sleep_for(kWhileItCloses)) {
    // Declared before the lock, so that it is released after unlocking.
    std::shared_ptr<Device> known;
    const std::lock_guard lock(open.mutex);
    if (const auto entry = open.devices.find(key); entry != open.devices.end()) {
      known = entry->second.used.lock();
      if (!known) continue;
      if (!known->failed()) return known;
    }
    std::shared_ptr<Device> device(new Device(verbs, name), Close{key});
    open.devices[key] = {device.get(), device};
    return device;
  }
}

Device::Device(std::shared_ptr<Verbs> verbs, std::string name)
    : verbs_(std::move(verbs)), name_(std::move(name)), context_(verbs_->open(name_)) {
  limits_ = context_->limits();
  const std::size_t regions = regions_of(limits_);
  const std::size_t loans = limits_.lends && regions >= 2 * kMostLoans ? kMostLoans : 0;
  slots_ = std::make_unique<SlotMemory>(*context_, kBerthBytes, regions - loans);
  loans_ = std::make_unique<Loans>(*context_, loans);
}

Device::~Device() = default;

std::string Device::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void Device::fail(const std::string& why) {
  if (trouble_.empty()) trouble_ = fmt::format("device {}: {}", name_, why);
  failed_.store(true, std::memory_order_release);
}

void Device::look() {
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

std::string Device::trouble_of_pair(std::uint32_t number) const {
  if (!any_pair_failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  const auto found = failed_pairs_.find(number);
  return found == failed_pairs_.end() ? std::string() : found->second;
}

void Device::forget_pair(std::uint32_t number) {
  if (!any_pair_failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  failed_pairs_.erase(number);
}

}  // namespace mccl::transport::rdma
