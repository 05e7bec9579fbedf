// A child process with pipes, or a terminal, to its standard streams.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kit/pipe.h"
#include "cli/launch/verdict.h"

namespace mccl::cli::launch {

/// Columns and rows.
struct WindowSize {
  unsigned short columns = 80;
  unsigned short rows = 24;
};

/// What to start.
struct ProcessPlan {
  std::vector<std::string> argv;  ///< argv[0] is the path of the program.
  std::string directory;          ///< Empty: this one.
  std::map<std::string, std::string> environment;
  /// Standard input and output are a terminal of its own; standard error is a pipe always.
  std::optional<WindowSize> terminal;
  bool echo = false;                 ///< The terminal shows what is typed.
  std::vector<int> processors = {};  ///< On which it may run; empty: on those of this process.
};

/// A running child: the leader of a session of its own. Its ends of the streams do not block.
struct Process {
  pid_t id = -1;
  Descriptor input;
  Descriptor output;
  Descriptor error;
  bool has_terminal = false;  ///< input and output are the same terminal's.
  std::string token = {};     ///< Of the words amid its output (RankWords); empty: there are none.
};

/// The file that `program` names: itself when there is a slash in it (relative to `directory`),
/// else the first executable of that name on `path`. Empty when there is none.
std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory);

/// Lets this process open so many files more than it has open, and leaves the limit of its children
/// as it was. `what` needs them, and `fewer` would help, for the Error where the system does not
/// let it.
void make_room_for_files(std::size_t files, std::string_view what, std::string_view fewer);

/// Throws Error when no process can be made. A program that cannot be executed says so on its
/// standard error and exits with status 126 or 127, as under a shell.
Process start(const ProcessPlan& plan);

/// Makes this process the program. Returns only when that fails, with the cause in errno.
void execute(const std::string& program, std::vector<std::string> argv,
             const std::map<std::string, std::string>& environment);

/// How the child ended, if it did; what is left of its process group is told to end too.
std::optional<Exit> collect(pid_t child);

}  // namespace mccl::cli::launch
