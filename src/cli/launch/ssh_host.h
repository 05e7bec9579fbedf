// Another machine. Each rank is a session of ssh. Up to eight ranks share a connection, because
// sshd limits the sessions of each connection.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/kit/ssh.h"
#include "cli/launch/failure.h"
#include "cli/launch/running_host.h"
#include "cli/launch/ssh_connection.h"

namespace mccl::cli::launch {

/// Number of connections that `ranks` ranks on one host need.
std::size_t connections_for(std::size_t ranks);

class SshHost final : public RunningHost {
 public:
  /// Starts to connect.
  SshHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian,
          Logins& logins);

  void watch(Watch& watch) override;
  void collect() override;
  bool checked() const override {
    return (state_ != State::checking && state_ != State::late) || broken();
  }
  std::string fault() const override;
  Reached reached() const override { return reached_; }
  std::optional<Process> start_mccl(const std::vector<std::string>& words) override;
  std::optional<Process> request_forward(const std::string& flag,
                                         const std::string& from_and_to) override;
  void prepare(const Files& files, const std::vector<Variables>& variables) override;
  bool prepared() const override;
  Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) override;
  Exit ended(const Process& process, Exit exit, bool told) override;
  std::optional<Trouble> trouble() const override { return contact_.trouble(); }
  void signal(int number) override;
  void finish() override;
  bool finished() const override;

 private:
  /// The table in ssh_host.cpp lists the steps between them. Each SshConnection has a state of its
  /// own.
  enum class State {
    checking,   ///< The host checks whether it can run its ranks.
    checked,    ///< The host has sent all its results; other hosts may not have.
    preparing,  ///< The host gets its files, and missing connections are opened.
    running,
    killing,  ///< The ranks were sent SIGKILL.
    finishing,
    late,  ///< A time limit has passed. The connections were killed.
  };
  /// Goes to the next state, and sets the limit of its duration.
  void become(State next);
  void connect(const std::string& command);
  void hear(const SshConnection& from, std::string_view line);
  void hear_of_cores(const std::string& text);
  void hear_what_is_missing(const std::string& word, std::size_t rank);
  SshConnection& guard() { return *connections_.front(); }
  const SshConnection& guard() const { return *connections_.front(); }
  void tell_guard(const std::string& text) { guard().session().tell(text); }
  SshConnection& connection_of(const Rank& rank);
  /// True if a connection has ended, which ends all its sessions.
  bool broken() const;
  void keep_limit(Watch& watch);
  void beat(Watch& watch);
  bool ends(const SshConnection& connection);
  Process start_ssh(const std::vector<std::string>& words,
                    const std::optional<TerminalPlan>& terminal = {});

  const std::size_t number_;  ///< Identifies this host within the job.
  Logins& logins_;
  const std::string path_;  ///< PATH that the job sets for the ranks. Empty: the host's.
  const std::string token_;
  /// The ssh that prints which machines a login involves, and its output.
  Dialogue route_;
  std::string route_text_;
  std::vector<std::string> machines_;  ///< Empty until they are known.
  /// Connections to the host; the first one carries the guard's session.
  std::vector<std::unique_ptr<SshConnection>> connections_;
  Reached reached_;
  std::string mccl_;  ///< Path of mccl on the host; empty if it was not found.
  /// Path of taskset, which binds ranks, on the host; empty if there is none.
  std::string taskset_;
  Processors processors_;
  std::vector<std::string> faults_;
  std::string no_folder_;  ///< Folder in which the host could not make the job's folder.
  State state_ = State::checking;
  std::optional<Clock::time_point> limit_;  ///< Time at which the state must have ended.
  Clock::time_point next_beat_ = {};
  Contact contact_;
  std::map<pid_t, const SshConnection*> sessions_;  ///< Sessions of ranks that have not ended.
};

}  // namespace mccl::cli::launch
