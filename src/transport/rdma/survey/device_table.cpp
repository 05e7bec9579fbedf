#include "transport/rdma/survey/device_table.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/json_text.h"
#include "base/value_text.h"
#include "mccl/error.h"
#include "transport/rdma/survey/advice.h"

namespace mccl::transport::rdma {
namespace {

using nlohmann::json;

/// Maximum number of device names in one entry, which lists the devices from one rank to one peer.
constexpr std::size_t kMostNames = 64;
/// Maximum number of characters of a table value that an error message contains.
constexpr std::size_t kMostShown = 120;
/// Maximum size of the file in bytes; the table of the largest job is smaller.
constexpr std::uintmax_t kMostTableBytes = std::uintmax_t{64} << 20;

/// Returns the value as one printable line for messages.
std::string shown(const json& found) {
  std::string text = printable(found.dump());
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

std::string names_of(const std::vector<std::string>& names) {
  return names.empty() ? "none" : printable(fmt::format("{}", fmt::join(names, ", ")));
}

std::string name_of(const std::string& path) {
  return fmt::format("the table of RDMA devices {}", printable(path));
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InvalidArgument(fmt::format("{}: {}", name_of(path), what));
}

/// Returns the number of ranks. Throws if the table is not square, or does not match `size`.
std::size_t rows_of(const json& found, const std::string& path, std::optional<int> size) {
  const std::size_t ranks = size ? static_cast<std::size_t>(*size) : found.size();
  const auto is_row = [&](const json& row) { return row.is_array() && row.size() == ranks; };
  if (found.is_array() && !found.empty() && found.size() == ranks &&
      std::all_of(found.begin(), found.end(), is_row)) {
    return ranks;
  }
  refuse(path, fmt::format("expected a list for each {}, with an entry for each rank; found {}",
                           size ? fmt::format("of {} ranks", ranks) : "rank", shown(found)));
}

/// Returns the names in `entry`, which may be null, a name, or a list of names. Returns nullopt for
/// any other value.
std::optional<std::vector<std::string>> names_in(const json& entry) {
  std::vector<std::string> names;
  const json list = entry.is_null()    ? json::array()
                    : entry.is_array() ? entry
                                       : json::array({entry});
  for (const json& name : list) {
    if (!name.is_string() || name.get<std::string>().empty() || names.size() == kMostNames)
      return std::nullopt;
    names.push_back(name.get<std::string>());
  }
  return names;
}

/// Throws if the table lists a device from a rank to that same rank, or if the two directions of a
/// pair have different numbers of devices.
void check_ends(const DeviceTable& table, const std::string& path) {
  for (std::size_t a = 0; a < table.size(); ++a) {
    if (!table[a][a].empty()) {
      refuse(path, fmt::format("from rank {} to itself: expected null; found {}", a,
                               names_of(table[a][a])));
    }
    for (std::size_t b = 0; b < a; ++b) {
      if (table[a][b].size() == table[b][a].size()) continue;
      refuse(path, fmt::format("from rank {} to rank {}: {}, and back: {}; name one device at each "
                               "end of every cable",
                               a, b, names_of(table[a][b]), names_of(table[b][a])));
    }
  }
}

/// Maximum number of pairs that an error lists.
constexpr std::size_t kMostPairs = 4;

bool are_neighbours(std::size_t a, std::size_t b, std::size_t size) {
  return (a + 1) % size == b || (b + 1) % size == a;
}

/// Returns the pairs of ranks that should have a device to each other and have none, with the lower
/// rank first.
std::vector<std::string> missing_in(const DeviceTable& table, bool ring) {
  std::vector<std::string> missing;
  for (std::size_t a = 0; a < table.size(); ++a) {
    for (std::size_t b = a + 1; b < table.size(); ++b) {
      const bool wanted = !ring || are_neighbours(a, b, table.size());
      if (wanted && table[a][b].empty()) missing.push_back(fmt::format("{} and {}", a, b));
    }
  }
  return missing;
}

std::string listed(std::vector<std::string> pairs) {
  const std::size_t more = pairs.size() > kMostPairs ? pairs.size() - kMostPairs : 0;
  pairs.resize(pairs.size() - more);
  const std::string some = fmt::format("{}", fmt::join(pairs, ", "));
  return more == 0 ? some : fmt::format("{} and {} more", some, more);
}

std::string picture_of(const DeviceTable& table, bool ring) {
  Grid cells(table.size());
  std::vector<std::string> names;
  for (std::size_t a = 0; a < table.size(); ++a) {
    names.push_back(fmt::format("rank {}", a));
    for (std::size_t b = 0; b < table.size(); ++b) {
      const bool wanted = a != b && (!ring || are_neighbours(a, b, table.size()));
      cells[a].push_back(a == b ? kSelf
                         : !table[a][b].empty()
                             ? printable(fmt::format("{}", fmt::join(table[a][b], ",")))
                         : wanted ? kMissing
                                  : kNoCable);
    }
  }
  return draw(cells, names);
}

}  // namespace

DeviceTable parse_device_table(const std::string& text, const std::string& path,
                               std::optional<int> size) {
  const json found = parse_json(text, name_of(path), "a list for each rank");
  const std::size_t ranks = rows_of(found, path, size);
  DeviceTable table(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      std::optional<std::vector<std::string>> names = names_in(found[rank][peer]);
      if (!names) {
        refuse(path, fmt::format("from rank {} to rank {}: expected null, the name of a device, or "
                                 "a list of at most {} names; found {}",
                                 rank, peer, kMostNames, shown(found[rank][peer])));
      }
      table[rank].push_back(std::move(*names));
    }
  }
  check_ends(table, path);
  return table;
}

DeviceTable read_device_table(const std::string& path, std::optional<int> size) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0)
    refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  // Only a regular file is accepted: a directory has no text, and reading a pipe or device might
  // never end.
  if (!S_ISREG(status.st_mode)) refuse(path, "expected a file");
  const auto bytes = static_cast<std::uintmax_t>(status.st_size);
  if (bytes > kMostTableBytes)
    refuse(path, fmt::format("expected at most {} bytes; found {}", kMostTableBytes, bytes));
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes)))
    refuse(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  return parse_device_table(text, path, size);
}

bool is_mesh(const DeviceTable& table) { return missing_in(table, false).empty(); }

bool is_ring(const DeviceTable& table) { return missing_in(table, true).empty(); }

DeviceTable ring_of(DeviceTable table) {
  for (std::size_t a = 0; a < table.size(); ++a) {
    for (std::size_t b = 0; b < table.size(); ++b) {
      if (!are_neighbours(a, b, table.size())) table[a][b].clear();
    }
  }
  return table;
}

void require_shape(const std::string& path, const DeviceTable& table, bool ring) {
  if (is_ring(table) || (!ring && is_mesh(table))) return;
  const std::vector<std::string> to_a_ring = missing_in(table, true);
  throw InvalidArgument(fmt::format(
      "{}: {}: no device joins ranks {}{}\n  Name the device at each end of every cable in the "
      "table; `mccl config --hosts HOST,HOST,... --backend {} --output hosts.json` finds out how "
      "the hosts are cabled, names any missing cable, and writes the hostfile",
      name_of(path),
      ring ? "it is not a ring (MLX_JACCL_RING, MCCL_RDMA_RING)"
           : "it is neither a mesh, with a device from every rank to every other, nor a ring",
      listed(to_a_ring), picture_of(table, true), ring ? "jaccl-ring" : "jaccl"));
}

int check_device_table(const std::string& path, bool ring) {
  const DeviceTable table = read_device_table(path);
  require_shape(path, table, ring);
  return static_cast<int>(table.size());
}

}  // namespace mccl::transport::rdma
