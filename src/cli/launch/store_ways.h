// How ranks come to torch's store, which is on the host of rank 0, from hosts that do not reach
// that host: each such host has a forwarder (`mccl forward`), whose socket ssh leads to this
// machine and from here to the store. torch's env:// knows one address only and no relays.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/launch/job.h"
#include "cli/launch/lines.h"
#include "cli/launch/process.h"
#include "cli/launch/running_host.h"
#include "cli/launch/watch.h"

namespace mccl::cli::launch {

class StoreWays {
 public:
  using Hosts = std::vector<std::unique_ptr<RunningHost>>;

  /// Asks every host but that of rank 0 at which of its addresses it answers. All hosts are
  /// checked, and none is prepared. `folder` is the job's, here.
  StoreWays(const Job& job, const Hosts& hosts, const std::vector<Reached>& reached,
            std::uint16_t port, const std::string& folder);

  void watch(Watch& watch);
  void collect();
  bool done() const;
  /// Enters where the ranks of each host find the store.
  void enter(std::vector<Reached>& reached) const;
  /// For people: hosts that reach the store in no way, with the reason.
  std::vector<std::string> complaints() const;

 private:
  enum class State {
    asking,   ///< The forwarder has not answered.
    direct,   ///< At `address`.
    leading,  ///< At `port`; ssh is asked to lead its socket on.
    led,      ///< At `port`.
    failed,
  };
  struct Way {
    std::size_t host = 0;
    State state = State::asking;
    Process forwarder;
    Lines said;
    std::string complaint;
    std::string address;
    std::uint16_t port = 0;
    Process request;  ///< To lead the socket on.
  };

  void read(Way& way);
  void read_error(Way& way);
  void hear(Way& way, std::string_view line);
  void lead(Way& way);
  std::string socket_on(std::size_t host) const { return folders_[host] + "/store"; }

  const Job& job_;
  const Hosts& hosts_;
  const std::uint16_t port_;
  const std::size_t first_;           ///< The host of rank 0.
  std::vector<std::string> folders_;  ///< By host.
  std::string here_;                  ///< What leads to the store from this machine.
  bool led_here_ = false;             ///< `here_` is a socket of ours that has been asked for.
  Process request_here_;
  std::vector<std::unique_ptr<Way>> ways_;
  Clock::time_point limit_;
};

}  // namespace mccl::cli::launch
