// Finds programs: those in PATH, this program, and the Python that belongs to it.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli {

/// Returns the PATH of the environment, or `usual` if the environment has no PATH.
std::string path_of(const std::map<std::string, std::string>& environment,
                    const std::string& usual = {});

/// Returns the path of `program`, or an empty string if there is no such executable. A name with a
/// slash is relative to `directory`, and is returned unchanged. Other names are searched in `path`.
std::string find_program(const std::string& program, const std::string& path,
                         const std::string& directory = {});

/// Returns the path of this program. Empty if the system does not provide it.
std::filesystem::path this_program();

/// Returns the Python that runs .py files: the one beside this program, as in a virtual
/// environment, or else the first python3 or python on `path`. Empty if there is no Python.
std::string find_python(const std::string& path);

/// Replaces this process with `main()` of mccl.MODULE, in the Python of find_python(). If a package
/// is missing, Python prints how to install MCCL's optional dependencies of the same name, and ends
/// with status 2. `who` begins that message. Throws Error if there is no Python.
[[noreturn]] void become_python(const std::string& who, const std::string& module,
                                std::vector<std::string> arguments);

/// True if `python` has a build of MLX for CUDA, and this machine has a GPU for it. Only checks
/// which files exist, because importing MLX would take too long.
bool runs_mlx_on_cuda(const std::string& python, const std::string& devices = "/dev");

/// Quotes `word`, where needed, so that any POSIX shell reads back exactly its bytes.
std::string shell_word(std::string_view word);

/// Returns a command line of these words, quoted and separated by blanks.
std::string command_line(std::span<const std::string> words);

/// Splits `text` into words as a POSIX shell would. Quotes and backslashes are the only special
/// characters. Throws InvalidArgument if a quote is not closed; the message begins with `where`.
std::vector<std::string> split_words(std::string_view where, std::string_view text);

}  // namespace mccl::cli
