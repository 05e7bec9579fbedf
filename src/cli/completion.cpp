#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/completion/pages.h"
#include "cli/flag_values.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr const char* kFooter =
    R"text(The wheel installs these scripts in the folders that shells search. To install them by hand:
  bash   eval "$(mccl completion bash)" in ~/.bashrc
  zsh    mccl completion zsh > FOLDER/_mccl, for a FOLDER of $fpath
  fish   mccl completion fish > ~/.config/fish/completions/mccl.fish)text";

}  // namespace

Command add_completion(CLI::App& program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("completion", "Print the completion script for a shell");
  app->footer(kFooter);
  app->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}))
      ->option_text("SHELL");
  return {app, [shell, &program] {
            const std::vector<completion::Page> pages = completion::pages_of(program);
            fmt::print("{}", *shell == "bash"  ? completion::bash_of(pages)
                             : *shell == "zsh" ? completion::zsh_of(pages)
                                               : completion::fish_of(pages));
            return kGood;
          }};
}

Command add_man(CLI::App& program) {
  const auto name = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("man", "Print a manual page, as roff");
  app->group("");
  app->add_option("command", *name, "Command to describe; default: the program itself");
  return {app, [name, &program] {
            fmt::print("{}", completion::manual_of(program, *name));
            return kGood;
          }};
}

}  // namespace mccl::cli
