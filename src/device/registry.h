// Finds and keeps the devices of this machine.
#pragma once

#include <functional>
#include <memory>

#include "device/depot.h"
#include "device/device.h"
#include "device/pool.h"

namespace mccl::device {

/// A function that opens the device with this index, among the devices of one kind. Throws
/// InvalidArgument with the reason if there is no such device.
using Maker = std::function<std::shared_ptr<Accelerator>(int index)>;

/// Returns the depot of a device. The depot is made at the first call and kept until the process
/// ends. Throws InvalidArgument with a one-sentence reason if this machine has no such device.
std::shared_ptr<Depot> depot_of(Device device);

/// Returns the Pool of a device: memory that other processes may reach. Like the depot, the pool is
/// made at the first call and kept until the process ends. Throws like depot_of().
std::shared_ptr<Pool> pool_of(Device device);

/// Calls Depot::release_unused(time) for all devices.
void release_unused(Clock::duration time);

/// True if this process probably sees devices of this kind. Decides without loading a driver.
bool sees_any(DeviceKind kind);

/// Replaces the function that opens the devices of a kind, and drops the depots and pools of these
/// devices. Null restores the original function. Only tests call this.
void replace_maker(DeviceKind kind, Maker maker);

}  // namespace mccl::device
