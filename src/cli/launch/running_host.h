// A machine on which ranks run: how they are started there and ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/binding.h"
#include "cli/launch/contact.h"
#include "cli/launch/job.h"
#include "cli/launch/process.h"
#include "cli/launch/watch.h"

namespace mccl::cli::launch {

/// How a rank's process gets at the person's terminal; absent when it does not.
struct TerminalPlan {
  WindowSize size;
  bool echo = false;
};

/// What a rank's files hold; the same for all ranks.
struct Files {
  std::string ring;
  std::string devices;  ///< Empty: none.
};

/// Used in the order of its functions. What takes time is waited for in a Watch.
class RunningHost {
 public:
  virtual ~RunningHost() = default;

  /// Waits for what the host has to say and keeps the connection alive.
  virtual void watch(Watch& watch) = 0;
  /// Some child process has ended.
  virtual void collect() = 0;

  /// Whether the check has ended; then fault() or reached() is what came out.
  virtual bool checked() const = 0;
  /// What keeps ranks from running there, with the cure; empty when nothing does. May change until
  /// the host is prepared.
  virtual std::string fault() const = 0;
  virtual Reached reached() const = 0;

  /// Starts `mccl` there with these words, to end with its input; nothing where there is none.
  virtual std::optional<Process> start_mccl(const std::vector<std::string>& words) = 0;
  /// Asks ssh to forward a socket or port while the job runs; `flag` is -L or -R. The process ends
  /// with status 0 when it does. Nothing on this machine.
  virtual std::optional<Process> request_forward(const std::string& flag,
                                                 const std::string& from_and_to) = 0;

  /// Gives the host what its ranks need; `variables` are those of each of its ranks.
  virtual void prepare(const Files& files, const std::vector<const Rank*>& ranks,
                       const std::vector<Variables>& variables) = 0;
  virtual bool prepared() const = 0;
  /// On which cores the rank will run; known once the host has been given its files.
  virtual const Binding& binding_of(const Rank& rank) const = 0;
  /// A process whose streams are the rank's.
  virtual Process start(const Rank& rank, const std::optional<TerminalPlan>& terminal) = 0;
  /// A rank has ended, as its process did, or as its script has told amid its output; then the
  /// process may still run. Returns how the rank ended.
  virtual Exit ended(const Process& process, Exit exit, bool told) = 0;

  /// What the network did to it; nothing where words passed until the job was ended.
  virtual std::optional<Trouble> trouble() const = 0;
  /// Sends SIGTERM or SIGKILL to all its ranks with their children; SIGUSR1, SIGUSR2 or SIGQUIT to
  /// the ranks alone.
  virtual void signal(int number) = 0;
  /// Ends what is left there and removes files. finished() tells when that is done.
  virtual void finish() = 0;
  virtual bool finished() const = 0;
  /// Once it has: a program there has imported MLX with MCCL in it.
  virtual bool had_mlx_on_mccl() const = 0;
};

}  // namespace mccl::cli::launch
