// The machines on which ranks run: each is prepared, starts its ranks and ends them.
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

/// Contents of the files that ranks read. The same for all ranks.
struct Files {
  std::string ring;
  std::string devices;  ///< Empty: there is no such file.
};

/// The functions are called in the order of their declaration. Operations that take time continue
/// while the caller waits in a Watch.
class RunningHost {
 public:
  /// Runs the ranks on job.hosts[host]. The arguments must outlive this object.
  RunningHost(const Job& job, std::size_t host, const RunOptions& options, Guardian& guardian)
      : host_(job.hosts[host]),
        ranks_(job.ranks_on(host)),
        options_(options),
        guardian_(guardian) {}
  virtual ~RunningHost() = default;

  const Host& host() const { return host_; }
  const std::vector<const RankPlan*>& ranks() const { return ranks_; }

  /// Registers with `watch` everything that this host waits for, and does the periodic work of its
  /// connections.
  virtual void watch(Watch& watch) = 0;
  /// Reaps the host's own child processes, but not those of ranks. Called when some child may have
  /// ended.
  virtual void collect() = 0;

  /// True once the check of the host has ended. Then fault() and reached() hold its result.
  virtual bool checked() const = 0;
  /// The reason why ranks cannot run there, and how to fix it. Empty if there is none. May change
  /// until the host is prepared.
  virtual std::string fault() const = 0;
  virtual ReachedHost reached() const = 0;

  virtual bool has_mccl() const = 0;
  /// Starts `mccl` there with these arguments. It ends when its standard input closes.
  virtual ChildProcess start_mccl(const std::vector<std::string>& words) = 0;
  /// Returns a function to call when a process that this object has started does not exist any
  /// more.
  Dialogue::Reaped forgets() const {
    return [&guardian = guardian_](pid_t process) { guardian.forget(process); };
  }
  /// Asks ssh to forward a socket or port while the job runs. `flag` is -L or -R. The returned
  /// process exits with status 0 if ssh has accepted the request. Returns nothing for this machine.
  virtual std::optional<ChildProcess> request_forward(const std::string& flag,
                                                      const std::string& from_and_to) = 0;

  /// Gives the host the files that its ranks need. `variables` holds those of each of ranks(), in
  /// the same order.
  virtual void prepare(const Files& files, const std::vector<Variables>& variables) = 0;
  virtual bool prepared() const = 0;
  /// The cores on which the rank will run. Known once prepare() has been called.
  const Binding& binding_of(const RankPlan& rank) const { return bindings_.at(rank.rank); }
  /// Starts the rank. The streams of the returned process are the rank's.
  virtual ChildProcess start(const RankPlan& rank, const std::optional<TerminalPlan>& terminal) = 0;
  /// Called when a rank has ended. Returns `exit`, with `connection_lost` set if the connection to
  /// the host was lost. `announced`: the rank's shell wrapper has already printed the exit status,
  /// although the local `process` (such as ssh) may still run.
  virtual Exit ended(const ChildProcess& process, Exit exit, bool announced) = 0;

  /// The network failure that hit the ranks there. Empty if messages passed until the job was
  /// ended.
  virtual std::optional<Trouble> trouble() const = 0;
  /// Sends SIGTERM or SIGKILL to all ranks and their children, and SIGUSR1, SIGUSR2 or SIGQUIT to
  /// the ranks alone.
  virtual void signal(int number) = 0;
  /// Ends leftover processes there and removes the job's files. finished() returns true once that
  /// is done.
  virtual void finish() = 0;
  virtual bool finished() const = 0;
  /// True if a program there has imported MLX with MCCL's hook active. Valid once finished() is
  /// true.
  bool had_mlx_on_mccl() const { return had_mlx_on_mccl_; }

 protected:
  const Host& host_;
  const std::vector<const RankPlan*> ranks_;
  const RunOptions& options_;
  Guardian& guardian_;
  std::map<int, Binding> bindings_;  ///< Keyed by rank.
  bool had_mlx_on_mccl_ = false;
};

/// Number of connections that `ranks` ranks on one host need.
std::size_t connections_for(std::size_t ranks);

std::unique_ptr<RunningHost> make_local_host(const Job& job, std::size_t host,
                                             const RunOptions& options, Guardian& guardian);
/// Starts to connect. `logins` limits the number of logins in progress.
std::unique_ptr<RunningHost> make_ssh_host(const Job& job, std::size_t host,
                                           const RunOptions& options, Guardian& guardian,
                                           Logins& logins);

}  // namespace mccl::cli::launch
