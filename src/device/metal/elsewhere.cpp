#include "device/metal/driver.h"
#include "mccl/error.h"

namespace mccl::device::metal {

std::shared_ptr<Driver> open_driver() {
  throw InvalidArgument("this host has no Metal, which only Macs have");
}

}  // namespace mccl::device::metal
