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

std::string command_to_show(System system, const std::string& interface) {
  return system == System::macos ? fmt::format("ifconfig {}", interface)
                                 : fmt::format("ip link show {}", interface);
}

std::string command_to_count(System system, const std::string& interface) {
  return system == System::macos ? fmt::format("netstat -bI {}", interface)
                                 : fmt::format("ip -s link show {}", interface);
}

}  // namespace mccl::cluster
