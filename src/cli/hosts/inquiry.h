// All hosts asked at once: first what they are, then what connects them. On each, `mccl probe`
// answers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/hosts/session.h"
#include "cli/launch/signals.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"

namespace mccl::cli::hosts {

struct Asked {
  Host host;
  bool reached = false;
  std::string fault;           ///< Why it was not reached, with the cure.
  bool needs_install = false;  ///< Its mccl is missing, or of another build.
  cluster::HostFacts facts;
  std::vector<std::uint16_t> ports;  ///< Where its probe listens; empty when it does not.
  std::uint16_t packet_port = 0;
  bool hears_calls = false;
  std::string probe_fault;  ///< Why it does not listen.
  std::string lost;         ///< How it was lost after it had been reached.
};

/// Requests for each host, or what each has answered, by number of the host.
using Messages = std::vector<std::vector<nlohmann::json>>;

/// A problem for each host that was reached and then lost.
std::vector<cluster::Finding> findings_of_lost(const std::vector<Asked>& asked);

class Inquiry {
 public:
  /// Tells of progress; `text` is a line.
  using Progress = std::function<void(const std::string& text)>;

  /// `signals` end it, with an Error.
  Inquiry(std::vector<Host> hosts, Reaching reaching, launch::Signals& signals, Progress progress);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  /// Asks all hosts what they are; gives each up after `patience`.
  void gather(std::chrono::seconds patience);
  /// Forgets the hosts that were not reached. The others get new numbers.
  void forget_unreached();
  /// Has each host's probe listen, at ports of its choice (probe::kPortRanges).
  void start_probes();
  /// Gives each host's probe its requests, and waits until all are answered or `patience` is over.
  /// Returns the answers in the order in which they came.
  Messages probe(const Messages& requests, std::chrono::milliseconds patience);

  /// Has all probes call through their interfaces, and says who heard whom.
  cluster::Calls call();

  const std::vector<Asked>& asked() const { return asked_; }
  bool has_probe(std::size_t host) const;
  /// Asks a host that owes answers for nothing more.
  void give_up(std::size_t host);

 private:
  struct Line;
  void begin_to_ask(std::size_t host, std::chrono::seconds patience);
  void hear(std::size_t host, std::string_view line);
  void hear_probe(std::size_t host, const nlohmann::json& answer);
  void settle(std::size_t host, const nlohmann::json& told);
  std::string python_of(const Host& host) const;
  /// Why the host, which was given up after `patience`, has told nothing.
  std::string fault_of(std::size_t host, std::chrono::seconds patience) const;
  /// Until all hosts are done, or the time is over.
  void wait(Clock::time_point limit, const std::function<bool(std::size_t)>& done);

  const Reaching reaching_;
  const Progress progress_;
  const std::string key_;
  std::vector<Asked> asked_;
  launch::Signals& signals_;
  std::vector<std::unique_ptr<Line>> lines_;  ///< To each host.
};

}  // namespace mccl::cli::hosts
