// Another machine. Each rank is a session of ssh. Up to eight ranks share a connection, because
// sshd limits the sessions of each connection.
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

/// Default time for a host to become ready.
inline constexpr std::chrono::seconds kUsualPatience{30};

struct SshOptions {
  std::vector<std::string> arguments;  ///< The user's arguments for every ssh.
  std::chrono::milliseconds grace;
  std::chrono::seconds silence;   ///< Time without messages after which host and launcher give up.
  std::string path;               ///< PATH that the job sets for the ranks. Empty: the host's.
  std::chrono::seconds patience;  ///< Time to become ready, counted from its turn to log in.
  BindTo bind_to = BindTo::share;
  bool crowded = false;  ///< True if the job has more connections than may log in at the same time.
};

/// Number of connections that `ranks` ranks on one host need.
std::size_t connections_for(std::size_t ranks);

class SshHost final : public RunningHost {
 public:
  /// Starts to connect. `number` identifies this host within the job.
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
    checking,   ///< The host checks whether it can run its ranks.
    checked,    ///< The host has sent all its results; other hosts may not have.
    preparing,  ///< The host gets its files, and missing connections are opened.
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
  /// True if a connection has ended, which ends all its sessions.
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
  Process route_;  ///< The ssh that prints which machines a login involves.
  std::string route_text_;
  std::vector<std::string> machines_;  ///< Empty until they are known.
  /// Connections to the host; the first one carries the guard's session.
  std::vector<std::unique_ptr<SshConnection>> connections_;
  Reached reached_;
  std::string mccl_;  ///< Path of mccl on the host; empty if it was not found.
  /// Path of taskset, which binds ranks, on the host; empty if there is none.
  std::string taskset_;
  Processors processors_;
  std::map<int, Binding> bindings_;  ///< Keyed by rank.
  std::vector<std::string> faults_;
  std::string no_folder_;  ///< Folder in which the host could not make the job's folder.
  Phase phase_ = Phase::checking;
  bool guard_is_ready_ = false;
  bool late_ = false;
  bool killing_ = false;
  bool had_mlx_on_mccl_ = false;
  Clock::time_point limit_;  ///< Deadline of the answer that is awaited.
  Clock::time_point next_beat_ = {};
  Contact contact_;
  std::map<pid_t, const SshConnection*> sessions_;  ///< Sessions of ranks that have not ended.
};

}  // namespace mccl::cli::launch
