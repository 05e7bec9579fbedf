// Queries all hosts in parallel: first for their facts, then for the connections between them. The
// command `mccl probe` runs on each host and answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/kit/host.h"
#include "cli/kit/process.h"
#include "cli/kit/ssh.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cli::hosts {

/// Returns each host once, with the addresses of all its entries. A host may have several entries,
/// one for each of its ranks.
std::vector<Host> each_once(const std::vector<Host>& hosts);

struct Asked {
  Host host;
  bool reached = false;
  std::string fault;  ///< The reason why the host was not reached, with advice.
  /// True if the host's mccl is missing, does not run, or is a different build.
  bool needs_install = false;
  cluster::HostFacts facts;
  /// Ports at which the host's probe listens; empty if it does not listen.
  std::vector<std::uint16_t> ports;
  std::uint16_t packet_port = 0;
  bool hears_calls = false;
  std::string probe_fault;  ///< The reason why the host's probe does not listen.
  std::string lost;         ///< How the host was lost after it had been reached; else empty.
};

/// Returns the facts of the hosts that were reached.
std::vector<cluster::HostFacts> facts_of(const std::vector<Asked>& asked);
/// Returns the finding that the host was not reached, or that its mccl cannot be used.
cluster::Finding finding_of_unreached(const Asked& asked);
/// Returns a finding for each host that was reached and then lost.
std::vector<cluster::Finding> findings_of_lost(const std::vector<Asked>& asked);
/// Returns a finding for each host whose probe does not listen. `why` is the consequence.
std::vector<cluster::Finding> findings_of_silent(const std::vector<Asked>& asked, const char* why);

/// Function that receives each line of progress.
using Say = std::function<void(const std::string& line)>;

/// Requests to each host, or answers from each host. Indexed by host.
using Messages = std::vector<std::vector<nlohmann::json>>;

class Inquiry {
 public:
  /// gather(), start_probes(), probe() and call() throw Error if one of `signals` asks the program
  /// to end.
  Inquiry(std::vector<Host> hosts, Reaching reaching, Signals& signals, Say say);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  /// Asks all hosts for their facts. Gives up on each host that does not answer within `patience`.
  void gather(std::chrono::seconds patience);
  /// Removes the hosts that were not reached, which changes the indices of the other hosts.
  void forget_unreached();
  /// Makes each host's probe listen.
  void start_probes();
  /// Sends each host's probe its requests. Returns the answers that arrive within `patience`.
  Messages probe(const Messages& requests, std::chrono::milliseconds patience);

  /// Makes each probe send a call (see cli/probe/packets.h) through each usable interface. Returns
  /// which calls were received, and on which interfaces.
  cluster::CallResults call();

  const std::vector<Asked>& asked() const { return asked_; }
  bool has_probe(std::size_t host) const;
  /// Stops querying a host that has not answered all requests in time.
  void give_up(std::size_t host);

 private:
  struct Line;
  void begin_to_ask(std::size_t host, std::chrono::seconds patience);
  void hear(std::size_t host, std::string_view line);
  /// Returns the reason why the host has not reported its facts within `patience`.
  std::string fault_of(std::size_t host, std::chrono::seconds patience) const;
  /// Blocks until every host is done or its session has ended, or until the time `limit`.
  void wait(Clock::time_point limit, const std::function<bool(std::size_t)>& done);

  const Reaching reaching_;
  const Say say_;
  const std::string key_;
  std::vector<Asked> asked_;
  Signals& signals_;
  std::vector<std::unique_ptr<Line>> lines_;  ///< Indexed by host, like asked_.
};

/// Returns a line with the main facts of a host, which is shown as soon as the host has answered.
std::string summary_of(const cluster::HostFacts& facts);

}  // namespace mccl::cli::hosts
