// Hostfiles describe the machines of a job. A hostfile is a JSON list of hosts, or an object around
// one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

struct Hostfile {
  std::string backend;  ///< Empty if the file specifies none.
  std::map<std::string, std::string> environment;
  std::vector<Host> hosts;
  /// Unknown keys, with their positions in the file. They are ignored, as by MLX.
  std::vector<std::string> unknown_keys;
};

/// `name` is the file's name in messages. Throws InvalidArgument if the text is invalid; the
/// message gives the line or the entry, and what was expected.
Hostfile parse_hostfile(std::string_view name, std::string_view text);

/// Reads and parses the file. Warns of ignored keys on standard error. Throws InvalidArgument.
Hostfile read_hostfile(const std::string& path);

/// Returns a line that warns of ignored keys. Empty if there are none.
std::string warning_of(const Hostfile& file);

/// Returns the contents of the file as a readable table.
std::string table_of(const Hostfile& file);

}  // namespace mccl::cli::launch
