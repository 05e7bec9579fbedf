// The table of devices by which ranks reach each other, as MLX's jaccl reads it: for each rank a
// list that has for each rank null, the name of a device, or a list of names.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mccl::transport::rdma {

/// By rank, and by peer: the names of the devices.
using DeviceTable = std::vector<std::vector<std::vector<std::string>>>;

/// For a job of so many ranks, or of as many as the table has. Throws InvalidArgument, naming the
/// file, rank and peer, for what is malformed, for a device to oneself, and for one that leads
/// there while none leads back. Pairs without any are pairs without a cable.
DeviceTable read_device_table(const std::string& path, std::optional<int> size = {});
/// The same of a text; `path` is for messages.
DeviceTable parse_device_table(const std::string& text, const std::string& path,
                               std::optional<int> size = {});

}  // namespace mccl::transport::rdma
