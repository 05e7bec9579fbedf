// Shape of a device table: a mesh joins every rank with every other, a ring joins each rank with
// the next. MLX's jaccl accepts only these two.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/device_table.h"

namespace mccl::transport::rdma {

bool is_mesh(const DeviceTable& table);
/// True if each rank has a device to the next one, and the last to the first.
bool is_ring(const DeviceTable& table);
/// Returns the table without the devices between ranks that are not neighbours in the ring.
DeviceTable ring_of(DeviceTable table);

/// Throws InvalidArgument if `ring` is set and the table is not a ring, or if it is neither a ring
/// nor a mesh. The message shows which devices are missing and gives advice.
void require_shape(const std::string& path, const DeviceTable& table, bool ring);

/// Used by programs that start jobs: reads a table of any number of ranks and checks its shape.
/// Returns the number of ranks. Throws InvalidArgument.
int check_device_table(const std::string& path, bool ring);

}  // namespace mccl::transport::rdma
