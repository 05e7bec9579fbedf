// A child process whose standard streams are pipes or a terminal.
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

/// Size of a terminal in characters.
struct WindowSize {
  unsigned short columns = 80;
  unsigned short rows = 24;
};

/// Description of a process to start.
struct ProcessPlan {
  std::vector<std::string> argv;  ///< argv[0] is the path of the program.
  std::string directory;          ///< Empty: the current directory.
  std::map<std::string, std::string> environment;
  /// If set, standard input and output are a new terminal of this size. Standard error is always a
  /// pipe.
  std::optional<WindowSize> terminal;
  bool echo = false;  ///< True if the terminal echoes its input.
  /// CPUs that the process may use. Empty: those of this process.
  std::vector<int> processors = {};
};

/// A running child, which leads a session of its own. The descriptors are the parent's ends of its
/// streams and are non-blocking.
struct Process {
  pid_t id = -1;
  Descriptor input;
  Descriptor output;
  Descriptor error;
  bool has_terminal = false;  ///< True if `input` and `output` are the same terminal.
  /// Token that begins the script's lines in the output; see RankWords. Empty if there are none.
  std::string token = {};
};

/// Returns the path of `program`, or an empty string if there is no such executable. A name with a
/// slash is relative to `directory`, and is returned unchanged. Any other name is searched for in
/// the folders of `path`.
std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory);

/// Raises this process's limit of open files, so that it can open `files` more. Its children keep
/// the original limit. Throws Error if the system refuses. The message says that `what` needs the
/// files, and gives `fewer` as advice.
void make_room_for_files(std::size_t files, std::string_view what, std::string_view fewer);

/// Starts the process. Throws Error if none can be made. If the program cannot be executed, the
/// child reports that on its standard error and exits with status 126 or 127, like a shell.
Process start(const ProcessPlan& plan);

/// Replaces this process with the program. Returns only on failure, with the cause in errno.
void execute(const std::string& program, std::vector<std::string> argv,
             const std::map<std::string, std::string>& environment);

/// Returns how the child ended, or nothing if it still runs. If it has ended, sends SIGTERM to the
/// rest of its process group.
std::optional<Exit> collect(pid_t child);

}  // namespace mccl::cli::launch
