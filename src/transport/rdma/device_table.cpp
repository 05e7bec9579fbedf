#include "transport/rdma/device_table.h"

#include <fmt/format.h>
#include <sys/stat.h>

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

/// Maximum number of names per pair.
constexpr std::size_t kMostNames = 64;
/// Maximum number of characters of a value that an error shows.
constexpr std::size_t kMostShown = 120;
/// Maximum size of the file: more than the table of the largest job needs.
constexpr std::uintmax_t kMostTableBytes = std::uintmax_t{64} << 20;
/// Maximum depth of nested values; a table has three levels. Deeper values are dropped while
/// parsing, because printing them in an error would recurse as deeply.
constexpr int kMostNesting = 8;

/// Returns the value as one printable line for messages.
std::string shown(const json& found) {
  std::string text = printable(found.dump());
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

std::string names_of(const std::vector<std::string>& names) {
  return names.empty() ? "none" : printable(fmt::format("{}", fmt::join(names, ", ")));
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InvalidArgument(fmt::format("the table of RDMA devices {}: {}", printable(path), what));
}

/// Returns the number of ranks; throws unless the table is square and matches `size`.
std::size_t rows_of(const json& found, const std::string& path, std::optional<int> size) {
  const std::size_t ranks = size ? static_cast<std::size_t>(*size) : found.size();
  const auto is_row = [&](const json& row) { return row.is_array() && row.size() == ranks; };
  if (found.is_array() && !found.empty() && found.size() == ranks &&
      std::all_of(found.begin(), found.end(), is_row)) {
    return ranks;
  }
  refuse(path, fmt::format("expected a list for each {}, with an entry for each of them; found {}",
                           size ? fmt::format("of {} ranks", ranks) : "rank", shown(found)));
}

/// Accepts null, a name, or a list of names. Returns nothing for any other value.
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

/// Checks that every cable has two ends, at different ranks.
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

}  // namespace

DeviceTable parse_device_table(const std::string& text, const std::string& path,
                               std::optional<int> size) {
  const auto is_shallow = [](int depth, json::parse_event_t, json&) {
    return depth <= kMostNesting;
  };
  const json found = json::parse(text, is_shallow, false);
  if (found.is_discarded()) refuse(path, "is not JSON");
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
  // A directory has no text, and reading a pipe or device might never end.
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

}  // namespace mccl::transport::rdma
