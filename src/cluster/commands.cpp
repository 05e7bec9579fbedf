#include "cluster/commands.h"

#include <fmt/format.h>

namespace mccl::cluster {

std::string command_to_set(System system, const std::string& interface, bool up) {
  const char* state = up ? "up" : "down";
  return system == System::macos ? fmt::format("ifconfig {} {}", interface, state)
                                 : fmt::format("ip link set {} {}", interface, state);
}

std::string command_to_set_mtu(System system, const std::string& interface, int mtu) {
  return system == System::macos ? fmt::format("ifconfig {} mtu {}", interface, mtu)
                                 : fmt::format("ip link set {} mtu {}", interface, mtu);
}

std::string command_to_remove(System system, const std::string& interface,
                              const std::string& address) {
  if (system != System::macos) return fmt::format("ip addr del {} dev {}", address, interface);
  const bool ipv6 = address.find(':') != address.npos;
  return fmt::format("ifconfig {} {} {} -alias", interface, ipv6 ? "inet6" : "inet",
                     address.substr(0, address.find('/')));
}

std::string command_to_show(System system, const std::string& interface) {
  return system == System::macos ? fmt::format("ifconfig {}", interface)
                                 : fmt::format("ip link show {}", interface);
}

std::string command_to_count(System system, const std::string& interface) {
  return system == System::macos ? fmt::format("netstat -bI {}", interface)
                                 : fmt::format("ip -s link show {}", interface);
}

}  // namespace mccl::cluster
