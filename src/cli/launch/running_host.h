// The machines of a job: code that prepares them, and starts and ends the ranks on them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "cli/kit/dialogue.h"
#include "cli/launch/failure.h"
#include "cli/launch/job.h"
#include "cli/launch/resources.h"
#include "cli/launch/run.h"

namespace mccl::cli::launch {

/// A child process of the launcher, in a session of its own. When the launcher has ended for any
/// reason, the guardian ends all ranks on this machine and their children (SIGTERM, a grace time,
/// SIGKILL) and removes the job's folder.
class Guardian {
 public:
  /// Makes the folder and forks. Must be called while this process has one thread.
  explicit Guardian(std::chrono::milliseconds grace);
  /// Blocks until the guardian has ended all remaining processes.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Folder for files of the job, which only this user can enter.
  const std::string& folder() const { return folder_; }
  /// Add and remove a process group that the guardian must end. `leader` is the group's leader.
  void watch(pid_t leader) { send(leader); }
  void forget(pid_t leader) { send(-leader); }

 private:
  void send(pid_t what);

  std::string folder_;
  Descriptor pipe_;
  pid_t process_ = -1;
};

/// A machine on which ranks of the job run. The functions are called in the order of their
/// declaration; watch() and collect() are called repeatedly. Long operations continue while the
/// caller waits in a Watch. The defaults suit a machine that needs no connection.
class RunningHost {
 public:
  /// Manages the ranks on job.hosts[host]. The arguments must outlive this object.
  RunningHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian)
      : host_(job.hosts[host]),
        ranks_(job.ranks_on(host)),
        options_(options),
        guardian_(guardian) {}
  virtual ~RunningHost() = default;

  const Host& host() const { return host_; }
  const std::vector<const RankPlan*>& ranks() const { return ranks_; }

  /// Registers descriptors and times with `watch`. Also sends a beat (see failure.h) if one is due,
  /// and ends connections whose time limit has passed.
  virtual void watch(Watch&) {}
  /// Reaps the child processes of this object, except ranks.
  virtual void collect() {}

  /// True once the check of the host has ended. fault() and reached() then return its results.
  virtual bool checked() const { return true; }
  /// The reason why ranks cannot run on the host, with advice. Empty if they can. May change until
  /// prepared() returns true.
  virtual std::string fault() const = 0;
  virtual ReachedHost reached() const = 0;

  virtual bool has_mccl() const { return true; }
  /// Starts a command of `mccl` on the host that ends when its standard input closes.
  virtual ChildProcess start_mccl(const std::vector<std::string>& words) = 0;
  /// Returns a function that must be called with the id of each process that this object started,
  /// once that process has been reaped.
  Dialogue::Reaped forgets() const {
    return [&guardian = guardian_](pid_t process) { guardian.forget(process); };
  }
  /// Asks ssh to forward a socket or port while the job runs. `flag` is ssh's -L or -R, and
  /// `from_and_to` is the flag's argument. The returned process exits with status 0 if ssh has
  /// accepted the request. Returns nothing if no ssh is involved.
  virtual std::optional<ChildProcess> request_forward(const std::string& /*flag*/,
                                                      const std::string& /*from_and_to*/) {
    return {};
  }

  /// Begins to write `files` into the job's folder on the host. `variables` holds the environment
  /// of each rank, in the order of ranks().
  virtual void prepare(const std::vector<NamedText>& files,
                       const std::vector<Variables>& variables) = 0;
  virtual bool prepared() const { return true; }
  const Binding& binding_of(const RankPlan& rank) const { return bindings_.at(rank.rank); }
  /// Starts the rank. `restarts` is the number of its earlier starts in this job, which must have
  /// ended.
  virtual ChildProcess start(const RankPlan& rank, int restarts,
                             const std::optional<TerminalPlan>& terminal) = 0;
  /// Called when a rank has ended. Returns `exit`, with `connection_lost` set if so. `announced`:
  /// the rank's shell wrapper has printed the exit status, although `process` may still run.
  virtual Exit ended(const ChildProcess& process, Exit exit, bool announced) = 0;

  /// The network failure between the launcher and the host while ranks ran there, if any.
  virtual std::optional<Trouble> trouble() const { return {}; }
  /// Sends SIGTERM or SIGKILL to the ranks of the host and their children, but SIGUSR1, SIGUSR2 or
  /// SIGQUIT only to the ranks.
  virtual void signal(int number) = 0;
  /// Begins to end processes that ranks left behind on the host, and to remove the job's files.
  /// finished() returns true once that is done.
  virtual void finish() = 0;
  virtual bool finished() const { return true; }
  /// True if a program on the host has imported MLX with MCCL's hook active.
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
/// program imported MLX with MCCL's hook active. Empty if there is no such host, or if the job
/// failed and there is no other host: the programs probably failed before the import.
std::vector<std::string> texts_of_unused_mccl(const RunningHosts& hosts, bool failed);

/// Adds the hosts whose ranks a network failure ended to `failures`: the exit status of these ranks
/// hides the cause. Returns messages about the network failures.
std::vector<std::string> add_lost_hosts(const RunningHosts& hosts, const Job& job,
                                        std::vector<RankFailure>& failures);

/// Number of ssh connections that the job needs if all its hosts are reached by ssh.
std::size_t connections_of(const Job& job);

std::unique_ptr<RunningHost> make_local_host(const Job& job, std::size_t host,
                                             const RunOptions& options, Guardian& guardian);
/// Begins to connect. `logins` limits the ssh logins in progress on all hosts together.
std::unique_ptr<RunningHost> make_ssh_host(const Job& job, std::size_t host,
                                           const RunOptions& options, Guardian& guardian,
                                           Logins& logins);

}  // namespace mccl::cli::launch
