// One machine of a job: code that prepares it, and starts and ends the ranks on it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/kit/dialogue.h"
#include "cli/launch/failure.h"
#include "cli/launch/guardian.h"
#include "cli/launch/job.h"
#include "cli/launch/resources.h"
#include "cli/launch/run.h"

namespace mccl::cli::launch {

/// A machine on which ranks of the job run. The functions must be called in the order of their
/// declaration; watch() and collect() are called repeatedly. Long operations continue while the
/// caller waits in a Watch.
class RunningHost {
 public:
  /// Manages the ranks that run on job.hosts[host]. The arguments must outlive this object.
  RunningHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian)
      : host_(job.hosts[host]),
        ranks_(job.ranks_on(host)),
        options_(options),
        guardian_(guardian) {}
  virtual ~RunningHost() = default;

  const Host& host() const { return host_; }
  const std::vector<const RankPlan*>& ranks() const { return ranks_; }

  /// Registers with `watch` the descriptors that this object polls and the times at which it must
  /// act. Also sends a beat (see failure.h) to the machine if one is due, and ends connections
  /// whose time limit has passed.
  virtual void watch(Watch& watch) = 0;
  /// Reaps the child processes of this object, except ranks. Called when any child of the launcher
  /// may have ended.
  virtual void collect() = 0;

  /// True once the check of the host has ended. fault() and reached() then return its results.
  virtual bool checked() const = 0;
  /// The reason why ranks cannot run on the host, with advice. Empty if they can. May change until
  /// prepared() returns true.
  virtual std::string fault() const = 0;
  virtual ReachedHost reached() const = 0;

  virtual bool has_mccl() const = 0;
  /// Starts `mccl` on the host with the arguments `words`, which begin with the name of a command.
  /// The command must end when its standard input closes.
  virtual ChildProcess start_mccl(const std::vector<std::string>& words) = 0;
  /// Returns a function that makes the guardian forget a process. The caller must call it with the
  /// id of each process that this object started, once that process has been reaped.
  Dialogue::Reaped forgets() const {
    return [&guardian = guardian_](pid_t process) { guardian.forget(process); };
  }
  /// Asks ssh to forward a socket or port while the job runs. `flag` is ssh's -L or -R, and
  /// `from_and_to` is the flag's argument. The returned process exits with status 0 if ssh has
  /// accepted the request. Returns nothing if the host is this machine, because no ssh is involved.
  virtual std::optional<ChildProcess> request_forward(const std::string& flag,
                                                      const std::string& from_and_to) = 0;

  /// Begins to write `files`, which all ranks read, into the job's folder on the host. `variables`
  /// holds the environment of each rank, in the order of ranks().
  virtual void prepare(const std::vector<NamedText>& files,
                       const std::vector<Variables>& variables) = 0;
  virtual bool prepared() const = 0;
  /// The processors to which the rank is bound. Valid once prepare() has been called.
  const Binding& binding_of(const RankPlan& rank) const { return bindings_.at(rank.rank); }
  /// Starts the rank. The streams of the returned process are the streams of the rank. `restarts`
  /// is the number of earlier starts of the rank in this job. Those must have ended.
  virtual ChildProcess start(const RankPlan& rank, int restarts,
                             const std::optional<TerminalPlan>& terminal) = 0;
  /// Called when a rank has ended. Returns `exit`, with `connection_lost` set if the connection to
  /// the host was lost. `announced`: the rank's shell wrapper has already printed the exit status,
  /// although the local `process` (such as ssh) may still run.
  virtual Exit ended(const ChildProcess& process, Exit exit, bool announced) = 0;

  /// The network failure between the launcher and the host while ranks ran there. Empty if the
  /// launcher received messages until the job was ended.
  virtual std::optional<Trouble> trouble() const = 0;
  /// Sends SIGTERM or SIGKILL to the ranks of the host and their children, but SIGUSR1, SIGUSR2 or
  /// SIGQUIT only to the ranks.
  virtual void signal(int number) = 0;
  /// Begins to end processes that ranks left behind on the host, and to remove the job's files.
  /// finished() returns true once that is done.
  virtual void finish() = 0;
  virtual bool finished() const = 0;
  /// True if a program on the host has imported MLX with MCCL's hook active. Valid once finished()
  /// is true.
  bool had_mlx_on_mccl() const { return had_mlx_on_mccl_; }

 protected:
  const Host& host_;
  const std::vector<const RankPlan*> ranks_;
  const RunOptions& options_;
  Guardian& guardian_;
  std::map<int, Binding> bindings_;  ///< Keyed by rank.
  bool had_mlx_on_mccl_ = false;
};

/// Exit status of a rank whose host was lost.
inline constexpr int kConnectionLost = 255;

using RunningHosts = std::vector<std::unique_ptr<RunningHost>>;

/// Returns a message for each host whose ranks are not bound to cores, with the reason.
std::vector<std::string> texts_of_unbound(const RunningHosts& hosts);

/// With --mlx, after all hosts have finished: returns a warning that lists the hosts on which no
/// program imported MLX with MCCL's hook active. Empty if there is no such host. If the job failed,
/// also empty if there is no other host, because the programs probably failed before the import.
std::vector<std::string> texts_of_unused_mccl(const RunningHosts& hosts, bool failed);

/// Adds a lost host to `failures` if a network failure ended its ranks. The exit status of these
/// ranks hides the cause, because the launcher or the host's guard killed them. Returns messages
/// about the network failures.
std::vector<std::string> add_lost_hosts(const RunningHosts& hosts, const Job& job,
                                        std::vector<RankFailure>& failures);

/// Number of connections that all hosts of the job need, if all of them are reached by ssh.
std::size_t connections_of(const Job& job);

std::unique_ptr<RunningHost> make_local_host(const Job& job, std::size_t host,
                                             const RunOptions& options, Guardian& guardian);
/// Returns a host to which ssh has begun to connect. `logins` limits how many ssh logins are in
/// progress at a time, on all hosts together.
std::unique_ptr<RunningHost> make_ssh_host(const Job& job, std::size_t host,
                                           const RunOptions& options, Guardian& guardian,
                                           Logins& logins);

}  // namespace mccl::cli::launch
