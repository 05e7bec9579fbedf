// Makes torch's store reachable from hosts that cannot reach the host of rank 0, where the store
// is. Each such host has a forwarder (`mccl forward`). ssh forwards the forwarder's socket to this
// machine, and from here to the store. torch's env:// supports only one address and no relays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/kit/process.h"
#include "cli/kit/watch.h"
#include "cli/launch/job.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class StoreWays {
 public:
  using Hosts = std::vector<std::unique_ptr<RunningHost>>;

  /// Asks each host except that of rank 0 at which address it gets an answer from rank 0's host.
  /// All hosts must have been checked, and none prepared. `folder` is the job's folder on this
  /// machine.
  StoreWays(const Job& job, const Hosts& hosts, const std::vector<Reached>& reached,
            std::uint16_t port, const std::string& folder);

  void watch(Watch& watch);
  void collect();
  bool done() const;
  /// Sets Reached::store of each host.
  void enter(std::vector<Reached>& reached) const;
  /// Returns messages for the user: the hosts that cannot reach the store, and why.
  std::vector<std::string> complaints() const;

 private:
  enum class State {
    asking,   ///< The forwarder has not answered.
    direct,   ///< The host of rank 0 answers at `address`.
    leading,  ///< The forwarder listens at `port`; ssh is asked to forward its socket.
    led,      ///< The store is reachable at `port` of the host itself.
    failed,
  };
  struct Way {
    std::size_t host;
    Dialogue forwarder;
    State state = State::asking;
    std::string address = {};
    std::uint16_t port = 0;
    Process request = {};  ///< The ssh that forwards the socket.
  };

  void hear(Way& way, std::string_view line);
  void lead(Way& way);
  std::string socket_on(std::size_t host) const { return folders_[host] + "/store"; }

  const Job& job_;
  const Hosts& hosts_;
  const std::uint16_t port_;
  const std::size_t first_;           ///< The host of rank 0.
  std::vector<std::string> folders_;  ///< Indexed by host.
  std::string here_;                  ///< Port or socket on this machine that leads to the store.
  bool led_here_ = false;  ///< True if `here_` is a port, or ssh has been asked to forward it.
  Process request_here_;
  std::vector<std::unique_ptr<Way>> ways_;
  Clock::time_point limit_;
};

}  // namespace mccl::cli::launch
