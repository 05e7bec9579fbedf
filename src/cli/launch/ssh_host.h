// Another machine: ranks are sessions of ssh, all over one connection as long as its sshd takes so
// many sessions, and over a further one for each eight ranks more.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/launch/contact.h"
#include "cli/launch/guardian.h"
#include "cli/launch/logins.h"
#include "cli/launch/running_host.h"
#include "cli/launch/ssh_connection.h"

namespace mccl::cli::launch {

/// For a host to become ready.
inline constexpr std::chrono::seconds kUsualPatience{30};

struct SshOptions {
  std::vector<std::string> arguments;  ///< Of the user's, for every ssh.
  std::chrono::milliseconds grace;
  std::chrono::seconds silence;   ///< After which host and launcher take each other for lost.
  std::string path;               ///< PATH of the ranks where it is set; else the host's own.
  std::chrono::seconds patience;  ///< Until it is ready, from its turn to log in on.
  BindTo bind_to = BindTo::share;
  bool crowded = false;  ///< The job has more connections than may log in at once.
};

/// How many connections to a host that many ranks take.
std::size_t connections_for(std::size_t ranks);

class SshHost final : public RunningHost {
 public:
  /// Begins to connect. `number` tells this host from the others of the job.
  SshHost(const Host& host, std::size_t number, const std::vector<const Rank*>& ranks,
          const Variables& inherited, Guardian& guardian, Logins& logins, SshOptions options);

  void watch(Watch& watch) override;
  void collect() override;
  bool checked() const override { return phase_ != Phase::checking || broken(); }
  std::string fault() const override;
  Reached reached() const override { return reached_; }
  std::optional<Process> start_mccl(const std::vector<std::string>& words) override;
  std::optional<Process> request_forward(const std::string& flag,
                                         const std::string& from_and_to) override;
  void prepare(const Files& files, const std::vector<const Rank*>& ranks,
               const std::vector<Variables>& variables) override;
  bool prepared() const override;
  const Binding& binding_of(const Rank& rank) const override { return bindings_.at(rank.rank); }
  Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) override;
  Exit ended(const Process& process, Exit exit, bool told) override;
  std::optional<Trouble> trouble() const override { return contact_.trouble(); }
  void signal(int number) override;
  void finish() override;
  bool finished() const override;
  bool had_mlx_on_mccl() const override { return had_mlx_on_mccl_; }

 private:
  enum class Phase {
    checking,   ///< It is asked whether it can run its ranks.
    checked,    ///< It has said all; others may not have.
    preparing,  ///< It gets its files, and the connections that are missing.
    running,
    finishing,
  };

  void ask_for_route();
  void read_route();
  void connect(const std::string& command);
  void hear(const SshConnection& from, std::string_view line);
  void hear_of_cores(const std::string& text);
  void hear_what_is_missing(const std::string& word, std::size_t rank);
  SshConnection& guard() { return *connections_.front(); }
  const SshConnection& guard() const { return *connections_.front(); }
  SshConnection& connection_of(const Rank& rank);
  /// Whether a connection has ended, and with it all that goes through it.
  bool broken() const;
  bool waits() const;
  void keep_limit(Watch& watch);
  void beat(Watch& watch);
  bool ends(const SshConnection& connection);
  Process start_ssh(const std::vector<std::string>& words,
                    const std::optional<TerminalPlan>& terminal);

  const Host host_;
  const std::size_t number_;
  const std::vector<const Rank*> ranks_;
  const Variables inherited_;
  Guardian& guardian_;
  Logins& logins_;
  const SshOptions options_;
  const std::string token_;
  Process route_;  ///< The ssh that prints at which machines a login takes place.
  std::string route_text_;
  std::vector<std::string> machines_;                        ///< Empty until they are known.
  std::vector<std::unique_ptr<SshConnection>> connections_;  ///< The first is the guard's.
  Reached reached_;
  std::string mccl_;     ///< The program there; empty where none has been found.
  std::string taskset_;  ///< The program that binds there; empty where there is none.
  Processors processors_;
  std::map<int, Binding> bindings_;  ///< By rank.
  std::vector<std::string> faults_;
  std::string no_folder_;  ///< Where none can be made for the job.
  Phase phase_ = Phase::checking;
  bool guard_is_ready_ = false;
  bool late_ = false;
  bool killing_ = false;
  bool had_mlx_on_mccl_ = false;
  Clock::time_point limit_;  ///< For the answer that is waited for.
  Clock::time_point next_beat_ = {};
  Contact contact_;
  std::map<pid_t, const SshConnection*> sessions_;  ///< Of ranks that have not ended.
};

}  // namespace mccl::cli::launch
