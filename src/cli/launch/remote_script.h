// What a shell on another machine is told: plain text for any POSIX sh, made here and run there.
//
// The first session on a host runs its guard. It makes a folder that only the user can enter, takes
// scripts from its standard input, each up to a line that is the token, and runs them. Its messages
// are lines that begin with the token. It writes the end of a line before each, because the host's
// start-up files may have printed a line without one. In the end it takes one word a line: beat,
// which it answers with the same word; usr1, usr2 and quit, which it passes to the ranks as
// signals; term, kill or finish. When the words stop for good, or beat stays away for long, it ends
// all ranks and removes the folder; of the latter it says "silence". Each rank is a script in that
// folder, run by a session of its own; rank_words.h has what it says. So neither the key nor
// anything else of the environment is ever on a command line.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/job.h"

namespace mccl::cli::launch {

/// The command of the guard's session, which says "folder PATH", or "no-folder PARENT" where none
/// can be made. It holds no quotes but the single ones around it, no
/// backslash before a quote and no line end, so that csh and fish pass it on like sh does.
std::string guard_command(const std::string& token);

/// What must be there for a rank to run; told by the number of the rank in `ranks`.
/// Says "folder PATH" before, then "from" with ssh's addresses, "cores TASKSET ALLOWED PLACES"
/// where ranks can be bound (as for processors_of), "mccl PATH" where it has that program,
/// "no-directory N", "no-program N" or "no-script N" for what is not there, and "checked"; "full
/// PATH" where the folder takes no more, and then the guard ends. `grace` is the time between
/// SIGTERM and SIGKILL; after `silence` without a beat the launcher is taken for dead.
std::string check_script(const std::string& token, const std::vector<const Rank*>& ranks,
                         const std::string& path, std::chrono::seconds grace,
                         std::chrono::seconds silence);

using NamedText = std::pair<std::string, std::string>;

/// Writes the files into the folder, says "ready", or "full PATH", and waits for words.
std::string files_script(std::span<const NamedText> files);

/// Sets the variables, changes the directory, runs the program and exits as it did: 128 + the
/// signal's number when it was killed. Says so amid its output, with the token: processes that the
/// program has left behind may hold the session open.
std::string rank_script(const Rank& rank, const Variables& variables, const std::string& folder,
                        const std::string& token);
std::string rank_file(int rank);
/// The command of a rank's session.
std::string rank_command(const std::string& folder, int rank);

/// The command of a session that keeps a further connection open.
std::string holder_command(const std::string& token);

}  // namespace mccl::cli::launch
