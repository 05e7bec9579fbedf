// The commands of the program with their flags, as needed for completions of shells and for manual
// pages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mccl::cli::completion {

enum class Takes { nothing, text, file, folder };

struct Flag {
  std::vector<std::string> names;  ///< Names with their dashes.
  std::string value;               ///< Placeholder in the help, such as LIST.
  std::string about;               ///< Description, in one line.
  Takes takes = Takes::nothing;
};

struct Page {
  std::string name;
  std::string about;
  std::vector<Flag> flags;
};

/// Returns the commands that the help lists.
std::vector<Page> pages_of(const CLI::App& program);

std::string bash_of(const std::vector<Page>& pages);
std::string zsh_of(const std::vector<Page>& pages);
std::string fish_of(const std::vector<Page>& pages);

/// Returns the manual page of a command, or of the program if `command` is empty, as roff. Throws
/// InvalidArgument if there is no such command.
std::string manual_of(const CLI::App& program, const std::string& command);

}  // namespace mccl::cli::completion
