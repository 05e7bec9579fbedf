#include "transport/rdma/table_shape.h"

#include <fmt/format.h>

#include "base/value_text.h"
#include "mccl/error.h"
#include "transport/rdma/grid.h"

namespace mccl::transport::rdma {
namespace {

constexpr std::size_t kMostNamed = 4;

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
  const std::size_t more = pairs.size() > kMostNamed ? pairs.size() - kMostNamed : 0;
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
      "the table of RDMA devices {}: {}: no device joins ranks {}{}\n  Name the device at each end "
      "of every cable there; `mccl config --hosts HOST,HOST,... --backend {} --output hosts.json` "
      "finds out how the hosts are cabled, names any missing cable, and writes the hostfile",
      printable(path),
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
