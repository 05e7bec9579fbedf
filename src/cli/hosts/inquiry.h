// Queries all hosts in parallel: first for their facts, then for the connections between them.
// `mccl probe` answers on each host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/hosts/asked.h"
#include "cli/hosts/session.h"
#include "cli/kit/watch.h"

namespace mccl::cli::hosts {

/// Requests for each host, or the answers of each. Indexed by host.
using Messages = std::vector<std::vector<nlohmann::json>>;

class Inquiry {
 public:
  /// Reports progress; `text` is one line.
  using Progress = std::function<void(const std::string& text)>;

  /// Functions that wait throw Error if one of `signals` asks the program to end.
  Inquiry(std::vector<Host> hosts, Reaching reaching, Signals& signals, Progress progress);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  /// Asks all hosts for their facts. Gives up each host that does not answer within `patience`.
  void gather(std::chrono::seconds patience);
  /// Removes the hosts that were not reached. The others are renumbered.
  void forget_unreached();
  /// Makes each host's probe listen, at ports that the probe chooses (probe::kPortRanges).
  void start_probes();
  /// Sends each host's probe its requests. Blocks until all are answered or `patience` has passed.
  /// Returns the answers in the order of arrival.
  Messages probe(const Messages& requests, std::chrono::milliseconds patience);

  /// Makes each probe send a discovery message (a "call"; see cli/probe/calls.h) through each of
  /// its host's usable interfaces. Returns which messages were received, and on which interfaces.
  cluster::CallResults call();

  const std::vector<Asked>& asked() const { return asked_; }
  bool has_probe(std::size_t host) const;
  /// Stops querying a host that has not answered all requests in time.
  void give_up(std::size_t host);

 private:
  struct Line;
  void begin_to_ask(std::size_t host, std::chrono::seconds patience);
  void hear(std::size_t host, std::string_view line);
  void hear_probe(std::size_t host, const nlohmann::json& answer);
  void settle(std::size_t host, const nlohmann::json& told);
  std::string python_of(const Host& host) const;
  /// Returns the reason why a host that was given up after `patience` has reported no facts.
  std::string fault_of(std::size_t host, std::chrono::seconds patience) const;
  /// Blocks until all hosts are done or the limit is reached. Hosts whose session has ended count
  /// as done.
  void wait(Clock::time_point limit, const std::function<bool(std::size_t)>& done);

  const Reaching reaching_;
  const Progress progress_;
  const std::string key_;
  std::vector<Asked> asked_;
  Signals& signals_;
  std::vector<std::unique_ptr<Line>> lines_;  ///< One for each host.
};

}  // namespace mccl::cli::hosts
