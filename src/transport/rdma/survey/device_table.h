// Table of the devices by which ranks reach each other, in the format of MLX's jaccl. The table is
// a list of rows, one per rank. A row has one entry per peer: null, the name of a device, or a list
// of names.
//
// A mesh joins every rank with every other, a ring joins each rank with the next. MLX's jaccl
// accepts only these two.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mccl::transport::rdma {

/// Names of devices, indexed by rank and peer.
using DeviceTable = std::vector<std::vector<std::vector<std::string>>>;

/// Reads the table of a job of `size` ranks, or of any number of ranks if `size` is not given. A
/// pair without devices has no cable. Throws InvalidArgument for a malformed table, for a device
/// from a rank to itself, and for a pair whose two directions have different numbers of devices.
/// The message contains the file, and the ranks in question.
DeviceTable read_device_table(const std::string& path, std::optional<int> size = {});
/// Parses the text of a table; `path` is used in messages.
DeviceTable parse_device_table(const std::string& text, const std::string& path,
                               std::optional<int> size = {});

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
