// Scripts that the launcher writes for any POSIX sh and runs on another machine through ssh.
//
// The first session on a host runs its guard, a shell that prepares and ends the ranks there. The
// guard makes a folder that only the user can enter, and runs scripts from its standard input. A
// line with only the token, a random word, ends each script. Messages of the guard are lines that
// begin with the token. A line end precedes each message, because the host's start-up files may
// have printed an unfinished line.
//
// After the scripts, the guard accepts these commands, one per line:
// - beat: it answers with the message "beat".
// - usr1, usr2, quit: it sends that signal to the ranks.
// - term: it sends SIGTERM to the process groups of the ranks.
// - kill: it sends SIGKILL to these groups, and to processes that have left them.
// - finish: it ends all ranks and removes the folder.
//
// The guard also finishes if its input ends, or if no beat arrives for the time `silence` of
// check_script(); it then first prints "silence" if ranks still run. A script in the guard's folder
// starts each rank, in a session of its own. That script sets the environment, so neither the
// variables nor the job key ever appear on a command line.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/launch/job.h"
#include "cli/launch/resources.h"

namespace mccl::cli::launch {

/// The command of the guard's session. It prints "folder PATH", or "no-folder PARENT" if no folder
/// can be made in PARENT. The user's login shell parses the command, which contains no single
/// quotes except the two around it, no backslash before a quote and no line end, so that csh and
/// fish parse it like sh does.
std::string guard_command(const std::string& token);

/// Script that checks whether the ranks can run. `path` is their PATH; empty: the host's own PATH.
/// `grace` is the time between SIGTERM and SIGKILL. The script prints these messages:
/// - "from" and the value of SSH_CONNECTION: the addresses and ports of both ends.
/// - "cores TASKSET ALLOWED PLACES" if ranks can be bound (see processors_of).
/// - "taken PORT", in hexadecimal, for each TCP port that has a listener.
/// - "mccl PATH" if the host has that program.
/// - "no-directory N", "no-program N" or "no-script N" if the directory, program or script of
///   `ranks`[N] is missing.
/// - "checked" after all of these.
/// - "full PATH" if the folder has no space for the next script. Then the guard ends.
std::string check_script(const std::string& token, const std::vector<const RankPlan*>& ranks,
                         const std::string& path, std::chrono::seconds grace,
                         std::chrono::seconds silence);

/// Script that writes the files into the guard's folder and prints "ready" or "full PATH".
std::string files_script(std::span<const NamedText> files);

/// Script that runs the program and exits with its status: 128 + the signal number if the program
/// was killed. The script also writes begin_word() and exit_word(), which reports the status even
/// if processes that the program left behind hold the session open.
std::string rank_script(const RankPlan& rank, const Variables& variables, const std::string& folder,
                        const std::string& token);
std::string rank_file(int rank);
std::string rank_command(const std::string& folder, int rank, int restarts);

/// The command of a session that only keeps an additional ssh connection to the host open.
std::string holder_command(const std::string& token);

/// Lines that rank_script() writes into the output of the rank before the program begins and after
/// it has ended. A line may follow an unfinished line of the output.
std::string begin_word(std::string_view token);
std::string exit_word(std::string_view token, std::string_view status);

/// Removes the lines of begin_word() and exit_word() from one stream of a rank. A default object
/// removes nothing.
class RankWords {
 public:
  RankWords() = default;
  /// If `begins` is true, everything before begin_word() is output of the host's start-up files and
  /// is dropped.
  RankWords(std::string token, bool begins) : token_(std::move(token)), begun_(!begins) {}

  /// Moves the bytes that filter() has held back to the start of `space`, and returns their number.
  /// New bytes must follow them.
  std::size_t put_held(std::span<char> space);
  /// Removes the script's lines from `bytes`, and holds back bytes that may become such a line.
  /// Returns how many bytes are left.
  std::size_t filter(std::span<char> bytes);
  /// At the end of the stream: the bytes that were held back and, if the program never began, those
  /// that were dropped.
  std::string rest();
  const std::optional<int>& status() const { return status_; }

 private:
  std::string token_;  ///< Empty: the stream has no lines of the script.
  bool begun_ = true;
  std::optional<int> status_;  ///< The rank's exit status, once the script has reported it.
  std::string held_;           ///< Bytes that may begin a line of the script.
  std::string dropped_;  ///< Output before the program began; shown if the program never begins.
};

/// Results of the check that a host's guard has reported.
struct GuardReport {
  ReachedHost reached;
  std::string no_folder;  ///< Folder in which the host could not make the job's folder.
  std::string mccl;       ///< Path of mccl on the host; empty if it was not found.
  std::string taskset;    ///< Path of taskset, which binds ranks; empty if the host has no taskset.
  Processors processors;
  std::vector<std::string> faults;  ///< Reasons why ranks cannot run on the host, with advice.

  /// Stores a message: its first word, and the rest. Ignores unknown messages.
  void take(std::string_view word, const std::string& rest,
            const std::vector<const RankPlan*>& ranks);
  /// Returns the reason why no folder was made. `complaint` is the standard error of the guard.
  std::string fault_of_folder(std::string_view complaint) const;
};

}  // namespace mccl::cli::launch
