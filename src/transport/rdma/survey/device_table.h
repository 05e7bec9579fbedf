// Table of the RDMA devices over which ranks reach each other, in the JSON format of MLX's jaccl
// backend: one row per rank, with one entry per peer. An entry is null, the name of a device, or a
// list of names.
//
// In a mesh, every rank has a device to every other rank. In a ring, each rank has a device to the
// next rank, and the last rank to the first. MLX's jaccl accepts only these two shapes.
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
/// The message names the file and the ranks.
DeviceTable read_device_table(const std::string& path, std::optional<int> size = {});
/// Parses the text of a table; `path` is used in messages.
DeviceTable parse_device_table(const std::string& text, const std::string& path,
                               std::optional<int> size = {});

bool is_mesh(const DeviceTable& table);
/// True if each rank has a device to the next rank, and the last rank to the first.
bool is_ring(const DeviceTable& table);
/// Returns the table without the devices between ranks that are not neighbours in the ring.
DeviceTable ring_of(DeviceTable table);

/// Checks that the table is a ring or, if `ring` is false, a ring or a mesh. Otherwise throws
/// InvalidArgument; the message shows which devices are missing and gives advice.
void require_shape(const std::string& path, const DeviceTable& table, bool ring);

/// Reads a launcher's table of any number of ranks, and returns that number. Throws InvalidArgument
/// if the table is malformed or require_shape() rejects it.
int check_device_table(const std::string& path, bool ring);

}  // namespace mccl::transport::rdma
