// The commands of the program with their flags, and what shells and man(1) are told of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mccl::cli::completion {

enum class Takes { nothing, text, file, folder };

struct Flag {
  std::vector<std::string> names;  ///< With their dashes.
  std::string value;               ///< As the help has it, such as LIST.
  std::string about;               ///< One line.
  Takes takes = Takes::nothing;
};

struct Page {
  std::string name;
  std::string about;
  std::vector<Flag> flags;
};

/// The commands that the help lists.
std::vector<Page> pages_of(const CLI::App& program);

std::string bash_of(const std::vector<Page>& pages);
std::string zsh_of(const std::vector<Page>& pages);
std::string fish_of(const std::vector<Page>& pages);

/// The manual page of a command, or of the program where `command` is empty, as roff. Throws
/// InvalidArgument for a command that there is not.
std::string manual_of(const CLI::App& program, const std::string& command);

}  // namespace mccl::cli::completion
