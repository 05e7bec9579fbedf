// Table of the devices by which ranks reach each other, in the format of MLX's jaccl. The table is
// a list of rows, one per rank. A row has one entry per peer: null, the name of a device, or a list
// of names.
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

}  // namespace mccl::transport::rdma
