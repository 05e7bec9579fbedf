// What a table of devices joins: every rank with every other (a mesh), or each with the next around
// a ring. MLX's jaccl takes these two and nothing else.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/device_table.h"

namespace mccl::transport::rdma {

bool is_mesh(const DeviceTable& table);
/// Each rank has a device to the one after it, and the last to the first.
bool is_ring(const DeviceTable& table);
/// Without the devices between ranks that are no neighbours in the ring.
DeviceTable ring_of(DeviceTable table);

/// Throws InvalidArgument, with a picture of what is missing and what to do, where the table of
/// this path is no ring and `ring` asks for one, or it is neither a ring nor a mesh.
void require_shape(const std::string& path, const DeviceTable& table, bool ring);

/// For whoever starts jobs: reads a table for however many ranks it has and requires its shape.
/// How many there are. Throws InvalidArgument.
int check_device_table(const std::string& path, bool ring);

}  // namespace mccl::transport::rdma
