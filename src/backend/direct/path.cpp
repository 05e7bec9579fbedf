#include "backend/direct/path.h"

#include <fmt/format.h>

#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::direct {

void DevicePath::enqueue(const Request& request, void* stream) {
  if (device_of(request) != device_) {
    throw InvalidArgument(fmt::format(
        "{}: rank {} created group '{}' on {}, but made this call on {}; use one GPU per group",
        name_of(request.call.collective), group().rank(), group().name(), device::name_of(device_),
        device::name_of(device_of(request))));
  }
  start(request, stream);
}

void DevicePath::make_queue() {
  own_queue_ = std::make_unique<device::SerialQueue>(device::depot_of(device_));
  order_by(*own_queue_);
}

void DevicePath::refuse(const Request& request, const std::string& reason) const {
  throw PeerError(fmt::format("{} on rank {} ({}) cannot start: {}",
                              name_of(request.call.collective), group().rank(),
                              device::name_of(device_), reason));
}

}  // namespace mccl::direct
