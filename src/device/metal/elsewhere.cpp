#include "device/metal/driver.h"
#include "mccl/error.h"

namespace mccl::device::metal {

std::shared_ptr<Driver> open_driver() {
  throw InvalidArgument(
      "this machine has no Metal, which only Macs have; copy the data to the host");
}

}  // namespace mccl::device::metal
