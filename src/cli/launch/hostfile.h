// Files that say on which machines a job runs: a JSON list of hosts, or an object around one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

struct Hostfile {
  std::string backend;  ///< Empty when the file names none.
  std::map<std::string, std::string> environment;
  std::vector<Host> hosts;
  /// Names of keys that are not known, with their places; they are ignored, as MLX does.
  std::vector<std::string> unknown_keys;
};

/// `name` is what messages call the file. Throws InvalidArgument that names the line, or the entry,
/// and what was expected.
Hostfile parse_hostfile(std::string_view name, std::string_view text);

/// Reads and parses, and warns on standard error of keys that are ignored. Throws InvalidArgument.
Hostfile read_hostfile(const std::string& path);

/// A line for people about keys that are ignored; empty when there are none.
std::string warning_of(const Hostfile& file);

/// What the file says, as a table for people.
std::string table_of(const Hostfile& file);

}  // namespace mccl::cli::launch
