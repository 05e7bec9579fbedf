// Simulates two hosts by network namespaces joined by a cable. Their loopback interfaces are
// separate. Both have a bridge with the same address, like hosts that run containers.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "mccl/error.h"

namespace mccl::testing {

inline bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Two namespaces, "a" and "b", which the destructor removes.
class Hosts {
 public:
  Hosts() : prefix_("mccl" + std::to_string(::getpid())) {
    ready_ =
        shell("ip netns add " + name(0)) && shell("ip netns add " + name(1)) && furnish(0) &&
        furnish(1) &&
        shell("ip -n " + name(0) + " link add cable type veth peer name cable netns " + name(1)) &&
        plug(0) && plug(1);
  }
  ~Hosts() {
    shell("ip netns del " + name(0));
    shell("ip netns del " + name(1));
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  bool ready() const { return ready_; }

  /// Drops all packets between the hosts from now on, without notifying either host.
  bool cut() const {
    const auto lose = [this](
                          int host) {  // packets for the other host now go to an unused MAC address
      return shell("ip -n " + name(host) + " neigh replace 10.77.0." + std::to_string(2 - host) +
                   " lladdr 02:00:00:00:00:99 dev cable nud permanent");
    };
    return lose(0) && lose(1);
  }

  /// Drops packets above 1280 bytes to the second host from now on, without notifying the first.
  /// This is what happens behind a switch with a smaller MTU than the hosts. If new connections are
  /// `told`, their packets are small enough.
  bool lose_large_packets(bool told) const {
    const std::string advertise = " route replace 10.77.0.0/24 dev cable src 10.77.0.2 advmss 1460";
    return shell("ip -n " + name(0) + " link set cable gso_max_segs 1") &&
           shell("ip -n " + name(1) + " link set cable mtu 1280") &&
           (told || shell("ip -n " + name(1) + advertise));
  }

  /// Moves the calling process into the namespace of `host`; call it in a child process.
  void enter(int host) const {
    const int space = ::open(("/var/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) throw Error("cannot enter " + name(host));
    ::close(space);
  }

 private:
  std::string name(int host) const { return prefix_ + (host == 0 ? "a" : "b"); }

  bool furnish(int host) const {
    const std::string ip = "ip -n " + name(host) + " ";
    return shell(ip + "link set lo up") && shell(ip + "link add bridge0 type bridge") &&
           shell(ip + "link add port0 type veth peer name inside0") &&
           shell(ip + "link set port0 master bridge0 up") && shell(ip + "link set inside0 up") &&
           shell(ip + "addr add 172.31.0.1/24 dev bridge0") && shell(ip + "link set bridge0 up");
  }
  bool plug(int host) const {
    const std::string ip = "ip -n " + name(host) + " ";
    const std::string number = std::to_string(host + 1);
    return shell(ip + "addr add 10.77.0." + number + "/24 dev cable") &&
           shell(ip + "addr add fd77::" + number + "/64 dev cable nodad") &&
           shell(ip + "link set cable up");
  }

  std::string prefix_;
  bool ready_ = false;
};

}  // namespace mccl::testing
