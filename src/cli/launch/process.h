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
  bool echo = false;  ///< The terminal echoes its input.
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
  bool has_terminal = false;  ///< `input` and `output` are the same terminal.
  std::string token = {};     ///< Begins the script's lines in its output (RankWords), if any.
};

/// Returns the path of `program`. A name with a slash, relative to `directory`, is returned
/// unchanged. Any other name is the first executable of that name on `path`. Returns an empty
/// string if there is no such executable.
std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory);

/// Raises this process's limit of open files, so that it can open `files` more. Its children keep
/// the original limit. Throws Error if the system refuses. The error text says that `what` needs
/// the files, and advises `fewer`.
void make_room_for_files(std::size_t files, std::string_view what, std::string_view fewer);

/// Starts the process. Throws Error if none can be made. If the program cannot be executed, the
/// child writes so to its standard error and exits with status 126 or 127, like a shell.
Process start(const ProcessPlan& plan);

/// Replaces this process with the program. Returns only on failure, with the cause in errno.
void execute(const std::string& program, std::vector<std::string> argv,
             const std::map<std::string, std::string>& environment);

/// Returns how the child ended, or nothing if it still runs. Sends SIGTERM to the rest of its
/// process group.
std::optional<Exit> collect(pid_t child);

}  // namespace mccl::cli::launch
