#include "transport/rdma/survey/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/value_text.h"

namespace mccl::transport::rdma {
namespace {

/// Returns the network interface of a device; empty if the system does not report it.
std::string interface_of(const std::string& device, int port) {
  if (device.starts_with("rdma_")) return device.substr(5);
  if (device.find('/') != device.npos) return {};
  std::ifstream file(
      fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/ndevs/0", device, port));
  std::string name;
  std::getline(file, name);
  return printable(name);
}

#ifdef __APPLE__
constexpr std::string_view kUp = "ifconfig {} up";
constexpr std::string_view kAddress = "ifconfig {} inet 169.254.x.y netmask 255.255.0.0 alias";
#else
constexpr std::string_view kUp = "ip link set {} up";
constexpr std::string_view kAddress = "ip addr add ADDRESS/24 dev {}";
#endif

/// Returns the command `form` with "{}" replaced by the name of the interface, or by IF if the name
/// is unknown.
std::string command(std::string_view form, const std::string& interface) {
  const std::string name = interface.empty() ? "IF" : interface;
  return "sudo " + fmt::format(fmt::runtime(form), name);
}

std::string named(const std::string& interface) {
  return interface.empty() ? "its interface" : interface;
}

/// Limits of a drawn table, so that it fits on a terminal: number of ranks (rows and columns), and
/// characters per cell.
constexpr std::size_t kMostDrawn = 12;
constexpr std::size_t kMostWide = 24;

std::string cut(const std::string& text) {
  return text.size() <= kMostWide ? text : fmt::format("{:.{}}...", text, kMostWide - 3);
}

std::string without_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string not_there(const std::string& device, const std::vector<std::string>& there) {
  return fmt::format(
      "there is no device {} (available: {}); correct its name in MCCL_RDMA_DEVICE, or in the "
      "table that this setting or MLX_IBV_DEVICES names: ibv_devices lists the devices of a host",
      printable(device), there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
}

std::string port_down(const std::string& device, const Port& port) {
  const std::string interface = interface_of(device, port.number);
  return fmt::format("port {} of {} is {}; plug the cable in, or bring {} up: {}", port.number,
                     device, port.state, named(interface), command(kUp, interface));
}

std::string without_address(const std::string& device, int port, const std::string& kind) {
  const std::string interface = interface_of(device, port);
  return fmt::format("{} has no address{}; give {} an address: {}", device,
                     kind.empty() ? "" : fmt::format(" of the kind MCCL_RDMA_GID={}", kind),
                     named(interface), command(kAddress, interface));
}

std::string draw(const Grid& cells, const std::vector<std::string>& names) {
  const std::size_t drawn = std::min(cells.size(), kMostDrawn);
  std::vector<std::size_t> widths(drawn);
  std::size_t margin = 0;
  for (std::size_t row = 0; row < drawn; ++row) {
    margin = std::max(margin, cut(names[row]).size());
    for (std::size_t column = 0; column < drawn; ++column) {
      widths[column] = std::max(
          {widths[column], cut(cells[row][column]).size(), fmt::format("to {}", column).size()});
    }
  }
  std::string head = fmt::format("\n  {:{}}", "from", margin);
  for (std::size_t column = 0; column < drawn; ++column)
    head += fmt::format("  {:{}}", fmt::format("to {}", column), widths[column]);
  std::string picture = without_end(std::move(head));
  for (std::size_t row = 0; row < drawn; ++row) {
    std::string line = fmt::format("\n  {:{}}", cut(names[row]), margin);
    for (std::size_t column = 0; column < drawn; ++column)
      line += fmt::format("  {:{}}", cut(cells[row][column]), widths[column]);
    picture += without_end(std::move(line));
  }
  if (drawn < cells.size()) picture += fmt::format("\n  ... ({} ranks in all)", cells.size());
  return picture;
}

}  // namespace mccl::transport::rdma
