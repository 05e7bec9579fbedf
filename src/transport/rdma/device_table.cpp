#include "transport/rdma/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::transport::rdma {
namespace {

using nlohmann::json;

/// For messages: a path that somebody gave is shown as it is, what the file says cut to a line.
struct Table {
  const std::string& path;

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(fmt::format("the table of RDMA devices {}: {}", printable(path), what));
  }

  json read() const {
    std::ifstream file(path);
    if (!file) refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
    json found = json::parse(file, nullptr, false);
    if (found.is_discarded()) refuse("is not JSON");
    return found;
  }

  std::vector<std::string> names_in(const json& entry, std::size_t rank, std::size_t peer) const {
    std::vector<std::string> names;
    const json list = entry.is_null() ? json::array() : entry.is_array() ? entry : json{entry};
    for (const json& name : list) {
      if (!name.is_string() || name.get<std::string>().empty()) {
        refuse(
            fmt::format("from rank {} to rank {}: expected null, the name of a device, or a list "
                        "of names; found {}",
                        rank, peer, printable(entry.dump())));
      }
      names.push_back(name.get<std::string>());
    }
    return names;
  }
};

std::string names_of(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

DeviceTable read_device_table(const std::string& path, int size) {
  const Table file{path};
  const json found = file.read();
  const auto ranks = static_cast<std::size_t>(size);
  const auto is_row = [&](const json& row) { return row.is_array() && row.size() == ranks; };
  if (!found.is_array() || found.size() != ranks ||
      !std::all_of(found.begin(), found.end(), is_row)) {
    file.refuse(fmt::format(
        "expected a list for each of {} ranks, with an entry for each of them; found {}", size,
        printable(found.dump())));
  }
  DeviceTable table(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer)
      table[rank].push_back(file.names_in(found[rank][peer], rank, peer));
    if (!table[rank][rank].empty()) {
      file.refuse(fmt::format("from rank {} to itself: expected null; found {}", rank,
                              names_of(table[rank][rank])));
    }
  }
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (table[a][b].size() == table[b][a].size()) continue;
      file.refuse(fmt::format(
          "from rank {} to rank {}: {}, and back: {}; name one device at each end of every cable",
          a, b, names_of(table[a][b]), names_of(table[b][a])));
    }
  }
  return table;
}

}  // namespace mccl::transport::rdma
