// Which devices this machine has.
#pragma once

#include <functional>
#include <memory>

#include "device/depot.h"
#include "device/device.h"
#include "device/pool.h"

namespace mccl::device {

/// Makes a device of one kind, by its index. Throws InvalidArgument that says why there is none.
using Maker = std::function<std::shared_ptr<Accelerator>(int index)>;

/// A device with what is kept for it, made when first asked for and kept as long as the process
/// lives. Throws InvalidArgument, in one sentence, where this machine has none such.
std::shared_ptr<Depot> depot_of(Device device);

/// The device's memory that others may reach, kept and made likewise.
std::shared_ptr<Pool> pool_of(Device device);

/// Gives pinned memory that was not used for `time` back to the system, of all devices.
void release_unused(Clock::duration time);

/// Whether this process seems to see devices of a kind, by what is known without loading a driver.
bool sees_any(DeviceKind kind);

/// Puts `maker` in the place of a kind's own one; null gives that back. For tests.
void replace_maker(DeviceKind kind, Maker maker);

}  // namespace mccl::device
