// All hosts asked at once: first what they are, then what connects them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/hosts/session.h"
#include "cli/launch/signals.h"
#include "cluster/host_facts.h"
#include "cluster/links.h"
#include "cluster/said.h"

namespace mccl::cli::hosts {

struct Asked {
  Host host;
  bool reached = false;
  std::string fault;  ///< Why it was not, with the cure.
  cluster::HostFacts facts;
  std::vector<std::uint16_t> ports;  ///< Where its probe listens; empty when there is none.
  std::uint16_t packet_port = 0;
  std::string probe_fault;  ///< Why there is none.
  std::string lost;         ///< What became of it, where it was there and is no more.
};

/// Problems: those that were there, and then no more.
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

  /// Asks all; gives each up after `patience`.
  void gather(std::chrono::seconds patience);
  /// From here on there are only those that were reached, with new numbers.
  void forget_unreached();
  /// Has `mccl probe` run on each host that has it, or else Python, listening on these ports.
  void start_probes(const std::vector<std::uint16_t>& ports);
  /// Gives each host's probe its commands, and waits until all of them are answered or `patience`
  /// is over. Of each host the answers, in the order in which they come; what it hears of others'
  /// calls is among them.
  std::vector<std::vector<std::string>> probe(const std::vector<std::vector<std::string>>& commands,
                                              std::chrono::milliseconds patience);

  /// Has all probes call through their interfaces; who heard whom, by number of the host.
  std::vector<cluster::Heard> call();

  const std::vector<Asked>& asked() const { return asked_; }
  bool has_probe(std::size_t host) const;
  /// Of one that owes answers, and gives none: nothing more is asked of it.
  void give_up(std::size_t host);

 private:
  struct Line;
  void hear(std::size_t host, std::string_view line);
  std::string python_of(const Host& host) const;
  /// Words for the shell there; empty when it has nothing to run.
  std::string probe_command(std::size_t host) const;
  void begin_to_ask(std::size_t host);
  void settle(std::size_t host);
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
