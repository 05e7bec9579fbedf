// Another machine: ranks are sessions of ssh, over as few connections as its sshd takes.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "cli/launch/contact.h"
#include "cli/launch/guardian.h"
#include "cli/launch/lines.h"
#include "cli/launch/running_host.h"

namespace mccl::cli::launch {

struct SshOptions {
  std::vector<std::string> arguments;  ///< Of the user's, for every ssh.
  std::chrono::milliseconds grace;
  std::chrono::seconds silence;  ///< After which host and launcher take each other for lost.
  std::string path;              ///< PATH of the ranks where it is set; else the host's own.
};

class SshHost final : public RunningHost {
 public:
  /// Begins to connect. `number` tells this host from the others of the job.
  SshHost(const Host& host, std::size_t number, const std::vector<const Rank*>& ranks,
          const Variables& inherited, Guardian& guardian, SshOptions options);

  void watch(Watch& watch) override;
  void collect() override;
  bool checked() const override { return checked_ || lost() || late_; }
  std::string fault() const override;
  Reached reached() const override { return reached_; }
  void prepare(const Files& files, const std::vector<const Rank*>& ranks,
               const std::vector<Variables>& variables) override;
  bool prepared() const override;
  Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) override;
  Exit ended(const Process& process, Exit exit) override;
  bool lost() const override { return connections_.front().ended; }
  std::optional<Trouble> trouble() const override { return contact_.trouble(); }
  void signal(int number) override;
  void finish() override;
  bool finished() const override;

 private:
  /// A master ssh with the session that keeps it: the guard's, or one that does nothing.
  struct Connection {
    Process process;
    std::string socket;
    Lines said;
    std::string complaint;
    std::string unsent;
    bool ready = false;
    bool ended = false;
  };

  void connect(const std::string& command);
  void read(Connection& connection);
  void hear(Connection& connection, std::string_view line);
  void tell(const std::string& text);
  void send(Connection& connection);
  Connection& connection_of(const Rank& rank);
  bool ends(const Connection& connection);
  Process start_ssh(const std::vector<std::string>& words,
                    const std::optional<TerminalPlan>& terminal);

  const Host host_;
  const std::size_t number_;
  const std::vector<const Rank*> ranks_;
  const Variables inherited_;
  Guardian& guardian_;
  const SshOptions options_;
  const std::string token_;
  std::vector<Connection> connections_;  ///< The first is the guard's.
  Reached reached_;
  std::vector<std::string> faults_;
  bool checked_ = false;
  bool late_ = false;
  bool killing_ = false;
  bool finishing_ = false;
  Clock::time_point limit_;  ///< For the answer that is waited for.
  Clock::time_point next_beat_ = {};
  Contact contact_;
  std::map<pid_t, const Connection*> sessions_;  ///< Of ranks that have not ended.
};

}  // namespace mccl::cli::launch
