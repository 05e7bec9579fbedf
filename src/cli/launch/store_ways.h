// Makes torch's store reachable from hosts that cannot reach the host of rank 0, where the store
// is. torch's env:// accepts only one address of the store, and supports no relays. So each such
// host runs a forwarder (`mccl forward`) that listens for the store's clients. ssh forwards the
// forwarder's socket to this machine, and from here to the store.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/value_text.h"
#include "cli/kit/dialogue.h"
#include "cli/kit/ssh.h"
#include "cli/launch/job.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

class StoreWays {
 public:
  /// Starts a forwarder on each host that has mccl, except on rank 0's host. The forwarder first
  /// looks for an address at which rank 0's host answers. All hosts must have been checked, and
  /// none prepared. `folder` is the job's folder on this machine.
  StoreWays(const Job& job, const RunningHosts& hosts, const std::vector<ReachedHost>& reached,
            std::uint16_t port, const std::string& folder)
      : job_(job),
        hosts_(hosts),
        port_(port),
        first_(job.ranks.front().host),
        limit_(Clock::now() + kForAnswers) {
    led_here_ = is_here(job.hosts[first_]);
    here_ = led_here_ ? fmt::format("127.0.0.1:{}", port) : folder + "/store";
    for (const ReachedHost& host : reached) folders_.push_back(host.folder);
    // The addresses of rank 0's host: those of the hostfile, and the one at which ssh reached it.
    std::vector<std::string> addresses = job.entry_of(job.ranks.front()).addresses;
    const std::string& other = reached[first_].address;
    if (std::ranges::find(addresses, other) == addresses.end()) addresses.push_back(other);
    for (std::size_t host = 0; host < hosts.size(); ++host) {
      if (host == first_) continue;
      std::vector<std::string> words = {"forward", "--socket", socket_on(host), "--port",
                                        std::to_string(port)};
      for (const std::string& address : addresses) words.insert(words.end(), {"--to", address});
      if (!hosts[host]->has_mccl()) continue;
      const std::size_t at = ways_.size();
      ways_.emplace_back(
          new Way{.host = host,
                  .forwarder = {[this, host, words] { return hosts_[host]->start_mccl(words); },
                                [this, at](std::string_view line) { hear(*ways_[at], line); },
                                nullptr, hosts[host]->forgets()}});
    }
  }

  void watch(Watch& watch) {
    for (const auto& way : ways_) way->forwarder.watch(watch);
    if (done()) return;
    if (Clock::now() < limit_) {
      watch.at(limit_);
      return;
    }
    for (const auto& way : ways_)
      if (way->state == State::asking || way->state == State::leading) way->state = State::failed;
  }

  void collect() {
    const std::optional<Exit> here = ended(request_here_);
    for (const auto& way : ways_) {
      if (way->forwarder.collect() && way->state == State::asking) way->state = State::failed;
      const std::optional<Exit> exit = ended(way->request);
      if (exit) way->state = exit->good() ? State::led : State::failed;
      if (here && !here->good() && way->port != 0) way->state = State::failed;
    }
  }

  bool done() const {
    return request_here_.id < 0 && std::ranges::none_of(ways_, [](const auto& way) {
             return way->state == State::asking || way->state == State::leading;
           });
  }

  void enter(std::vector<ReachedHost>& reached) const {
    for (const auto& way : ways_) {
      if (way->state != State::direct && way->state != State::led) continue;
      const bool is_direct = way->state == State::direct;
      reached[way->host].store = is_direct ? way->address : "127.0.0.1";
      reached[way->host].store_port = is_direct ? port_ : way->port;
    }
  }

  /// The hosts that cannot reach the store, and why.
  std::vector<std::string> complaints() const {
    std::vector<std::string> complaints;
    for (const auto& way : ways_) {
      if (way->state != State::failed) continue;
      const std::string_view cause = last_line_of(way->forwarder.complaint());
      const std::string why =
          way->port == 0
              ? fmt::format(
                    "\"mccl forward\", which checks whether this host reaches the host of rank 0, "
                    "does not run on this host ({}); install the same version of MCCL on both "
                    "hosts. If this host cannot connect to the host of rank 0,",
                    printable(cause, cause.size()))
              : "this host does not reach the host of rank 0, and ssh does not forward sockets "
                "between these hosts (see AllowStreamLocalForwarding and AllowTcpForwarding in "
                "sshd_config), so";
      complaints.push_back(
          fmt::format("{}: {} torch programs need init_method=\"mccl://\" instead of env://",
                      text_of(job_.hosts[way->host]), why));
    }
    return complaints;
  }

 private:
  /// Limits the answers of all forwarders, which try addresses for 1.5 s.
  static constexpr std::chrono::seconds kForAnswers{10};
  static constexpr std::string_view kWord = "mccl-forward ";
  enum class State {
    asking,   ///< The forwarder has not answered.
    direct,   ///< The host of rank 0 answers at `address`.
    leading,  ///< The forwarder listens at `port`; ssh was asked to forward its socket.
    led,      ///< The store is reachable at `port` of the host itself.
    failed,
  };
  struct Way {
    std::size_t host;
    Dialogue forwarder;
    State state = State::asking;
    std::string address = {};
    std::uint16_t port = 0;
    ChildProcess request = {};  ///< The process of `ssh -O forward`; see lead().
  };

  /// How a request to ssh ended; nothing if it still runs, or if there is none.
  static std::optional<Exit> ended(ChildProcess& request) {
    if (request.id < 0) return {};
    std::optional<Exit> exit = reap(request.id);
    if (exit) request = {};
    return exit;
  }
  void hear(Way& way, std::string_view line) {
    if (!line.starts_with(kWord) || way.state != State::asking) return;
    line.remove_prefix(kWord.size());
    const std::string_view word = line.substr(0, line.find(' '));
    const std::string_view rest = line.substr(std::min(line.size(), word.size() + 1));
    if (word == "direct") {
      way.address = printable(rest);
      way.state = State::direct;
    } else if (const auto port = parse_integer(rest);
               word == "listening" && port && *port > 0 && *port <= 65535) {
      way.port = static_cast<std::uint16_t>(*port);
      lead(way);
    }
  }

  /// Asks ssh to forward the forwarder's socket to this machine, and from here to the store. All
  /// hosts share the second of these connections.
  void lead(Way& way) {
    way.state = State::leading;
    if (!led_here_) {
      led_here_ = true;
      request_here_ =
          *hosts_[first_]->request_forward("-L", fmt::format("{}:127.0.0.1:{}", here_, port_));
    }
    std::optional<ChildProcess> request =
        hosts_[way.host]->request_forward("-R", fmt::format("{}:{}", socket_on(way.host), here_));
    if (request) {
      way.request = std::move(*request);
    } else {  // The forwarder runs on this machine, and its socket already leads to the store.
      way.state = State::led;
    }
  }

  std::string socket_on(std::size_t host) const { return folders_[host] + "/store"; }

  const Job& job_;
  const RunningHosts& hosts_;
  const std::uint16_t port_;
  const std::size_t first_;           ///< Index of rank 0's host.
  std::vector<std::string> folders_;  ///< Job folders, indexed by host.
  std::string here_;                  ///< Port or socket on this machine that leads to the store.
  bool led_here_ = false;  ///< True if `here_` is a port, or ssh has been asked to forward it.
  ChildProcess request_here_;
  std::vector<std::unique_ptr<Way>> ways_;
  Clock::time_point limit_;
};

}  // namespace mccl::cli::launch
