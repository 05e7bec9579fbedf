#include "transport/rdma/device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "transport/rdma/shape.h"

namespace mccl::transport::rdma {
namespace {

/// The devices of this process that are open. One that the parent of a fork has is not the child's.
struct Open {
  std::mutex mutex;
  std::map<std::tuple<const Verbs*, std::string, pid_t>, std::weak_ptr<Device>> devices;
};

Open& open_devices() {
  static Open open;
  return open;
}

std::size_t regions_of(const Limits& limits) {
  if (limits.regions <= 0) return Device::kMostRegions;
  return std::min(Device::kMostRegions, static_cast<std::size_t>(limits.regions));
}

}  // namespace

std::shared_ptr<Device> Device::open(const std::shared_ptr<Verbs>& verbs, const std::string& name) {
  Open& open = open_devices();
  const std::lock_guard lock(open.mutex);
  std::weak_ptr<Device>& known = open.devices[{verbs.get(), name, ::getpid()}];
  if (std::shared_ptr<Device> device = known.lock(); device && !device->failed()) return device;
  auto device = std::make_shared<Device>(verbs, name);
  known = device;
  return device;
}

Device::Device(std::shared_ptr<Verbs> verbs, std::string name)
    : verbs_(std::move(verbs)), name_(std::move(name)), context_(verbs_->open(name_)) {
  limits_ = context_->limits();
  domain_ = context_->make_domain();
  const std::size_t regions = regions_of(limits_);
  const std::size_t loans = limits_.lends && regions >= 2 * kMostLoans ? kMostLoans : 0;
  slots_ = std::make_unique<SlotMemory>(*domain_, kBerthBytes, regions - loans);
  loans_ = std::make_unique<Loans>(*domain_, loans);
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
  }
}

}  // namespace mccl::transport::rdma
