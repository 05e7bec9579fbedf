// `mccl completion` and `mccl man`: print shell completions and manual pages, generated from the
// flags of all commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value_text.h"
#include "cli/command.h"
#include "cli/kit/program.h"
#include "mccl/error.h"

namespace mccl::cli::completion {
namespace {

constexpr const char* kFooter =
    R"text(The wheel installs these scripts in the folders that shells search. To install them by hand:
  bash   eval "$(mccl completion bash)" in ~/.bashrc
  zsh    mccl completion zsh > FOLDER/_mccl, for a FOLDER of $fpath
  fish   mccl completion fish > ~/.config/fish/completions/mccl.fish)text";

enum class Takes { nothing, text, file, folder };

struct Flag {
  std::vector<std::string> names;  ///< All names of the flag, with their dashes.
  std::string value;               ///< Placeholder in the help, such as LIST.
  std::string about;               ///< Description, in one line.
  Takes takes = Takes::nothing;
};

using Commands = std::vector<const CLI::App*>;

Commands listed_commands(const CLI::App& program) {
  Commands commands;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) commands.push_back(command);
  return commands;
}

std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

Flag flag_of(const CLI::Option& option) {
  Flag flag{.names = {}, .value = option.get_option_text(), .about = {}, .takes = Takes::nothing};
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  flag.about = in_one_line(option.get_description());
  if (option.get_items_expected_max() == 0) {
    flag.value.clear();
  } else if (flag.value == "FILE" || flag.value == "PATH") {
    flag.takes = Takes::file;
  } else {
    flag.takes = flag.value == "DIR" ? Takes::folder : Takes::text;
  }
  return flag;
}

std::vector<Flag> flags_of(const CLI::App& command) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty() && !option->get_positional())
      flags.push_back(flag_of(*option));
  return flags;
}

/// Returns the flags with that kind of value, or all, with a blank before and after each name.
std::string names_in(const CLI::App& command, std::optional<Takes> takes = {}) {
  std::string names = " ";
  for (const Flag& flag : flags_of(command))
    if (!takes || flag.takes == *takes) names += fmt::format("{} ", fmt::join(flag.names, " "));
  return names;
}

std::string escaped(std::string_view text, std::string_view characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != characters.npos) result += '\\';
    result += c;
  }
  return result;
}

/// Escapes text for roff: a dot or a quote at the start of a line would begin a request, a
/// backslash would begin an escape, and a minus would be printed as a hyphen.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool begins = result.empty() || result.back() == '\n';
    if (begins && (c == '.' || c == '\'')) result += "\\&";
    result += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return result;
}

std::string bash_of(const Commands& commands) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* each : commands) {
    names.push_back(each->get_name());
    cases +=
        fmt::format("    {}) flags=\"{}\" files=\"{}\" folders=\"{}\" ;;\n", names.back(),
                    names_in(*each), names_in(*each, Takes::file), names_in(*each, Takes::folder));
  }
  return fmt::format(R"sh(# Completions of mccl for bash, as `mccl completion bash` prints them.
_mccl() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  local flags= files= folders=
  COMPREPLY=()
  if [[ $COMP_CWORD == 1 ]]; then
    COMPREPLY=($(compgen -W "{} help --help --version" -- "$cur"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
    completion) COMPREPLY=($(compgen -W "bash zsh fish --help" -- "$cur")); return ;;
    help) COMPREPLY=($(compgen -W "{}" -- "$cur")); return ;;
{}  esac
  if [[ $folders == *" $prev "* ]]; then
    COMPREPLY=($(compgen -d -- "$cur"))
  elif [[ $files == *" $prev "* ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  fi
}}
complete -o default -o filenames -F _mccl mccl
)sh",
                     fmt::join(names, " "), fmt::join(names, " "), cases);
}

std::string zsh_of(const Commands& commands) {
  std::string list;
  std::string cases;
  for (const CLI::App* each : commands) {
    const std::string name = each->get_name();
    list += fmt::format("    {}\n", shell_word(name + ":" + each->get_description()));
    cases += fmt::format("    {})\n      _arguments -S \\\n", name);
    for (const Flag& flag : flags_of(*each)) {
      const std::string about = escaped(flag.about, "[]:\\");
      const std::string value =
          flag.takes == Takes::nothing
              ? ""
              : fmt::format(":{}:{}", flag.value.empty() ? "value" : flag.value,
                            flag.takes == Takes::file     ? "_files"
                            : flag.takes == Takes::folder ? "_files -/"
                                                          : "");
      for (const std::string& of_flag : flag.names)
        cases += fmt::format("        {} \\\n",
                             shell_word(fmt::format("*{}[{}]{}", of_flag, about, value)));
    }
    cases += name == "completion" ? "        '1:shell:(bash zsh fish)'\n      ;;\n"
                                  : "        '*:: :_normal'\n      ;;\n";
  }
  return fmt::format(R"sh(#compdef mccl
# Completions of mccl for zsh, as `mccl completion zsh` prints them.
_mccl() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{}  esac
}}
_mccl "$@"
)sh",
                     list, cases);
}

std::string fish_of(const Commands& commands) {
  std::string text = "# Completions of mccl for fish, as `mccl completion fish` prints them.\n";
  const auto quoted = [](std::string_view about) {
    return fmt::format("'{}'", escaped(about, "'\\"));
  };
  for (const CLI::App* each : commands) {
    const std::string name = each->get_name();
    text += fmt::format("complete -c mccl -n __fish_use_subcommand -f -a {} -d {}\n", name,
                        quoted(each->get_description()));
    const std::string when = fmt::format("'__fish_seen_subcommand_from {}'", name);
    if (name == "completion")
      text += fmt::format("complete -c mccl -n {} -f -a 'bash zsh fish'\n", when);
    for (const Flag& flag : flags_of(*each)) {
      text += fmt::format("complete -c mccl -n {}", when);
      for (const std::string& of_flag : flag.names)
        text += of_flag.starts_with("--") ? " -l " + of_flag.substr(2) : " -s " + of_flag.substr(1);
      const char* value = flag.takes == Takes::file     ? " -r -F"
                          : flag.takes == Takes::folder ? " -x -a '(__fish_complete_directories)'"
                          : flag.takes == Takes::text   ? " -x"
                                                        : "";
      text += fmt::format("{} -d {}\n", value, quoted(flag.about));
    }
  }
  return text;
}

/// Returns the manual page of a command, or of the program if `command` is empty, as roff.
std::string manual_of(const CLI::App& program, const std::string& command) {
  const Commands commands = listed_commands(program);
  const CLI::App* app = &program;
  if (!command.empty()) {
    const auto found = std::ranges::find_if(
        commands, [&](const CLI::App* each) { return each->get_name() == command; });
    if (found == commands.end())
      throw InvalidArgument(
          fmt::format("{} is not a command; \"mccl --help\" lists them", in_quotes(command)));
    app = *found;
  }
  const std::string name = command.empty() ? "mccl" : "mccl-" + command;
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(
      ".\\\" Made from the help by `mccl man`.\n.TH {} 1 \"\" \"mccl {}\" \"MCCL\"\n.SH NAME\n{} "
      "\\- "
      "{}\n.SH SYNOPSIS\n.B mccl{}\n[\\fIflags\\fR]{}\n",
      roff(title), MCCL_VERSION, roff(name), roff(in_one_line(app->get_description())),
      command.empty() ? " \\fIcommand\\fR" : " " + command,
      command == "launch" ? " \\fIprogram\\fR [\\fIarguments\\fR]" : "");
  if (command.empty()) {
    text += ".SH COMMANDS\n";
    for (const CLI::App* each : commands)
      text += fmt::format(".TP\n.BR mccl\\-{} (1)\n{}\n", each->get_name(),
                          roff(in_one_line(each->get_description())));
  }
  text += ".SH OPTIONS\n";
  for (const Flag& flag : flags_of(*app))
    text += fmt::format(
        ".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(flag.names, ", "))),
        flag.value.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(flag.value)), roff(flag.about));
  const std::string footer = app->get_footer();
  if (!footer.empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(footer));
  return text;
}

}  // namespace

Command add(CLI::App& program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("completion", "Print the completion script for a shell");
  app->footer(kFooter);
  add_value(*app, "shell SHELL", *shell, "bash, zsh or fish", one_of({"bash", "zsh", "fish"}))
      ->required();
  return {app, [shell, &program] {
            const Commands commands = listed_commands(program);
            fmt::print("{}", *shell == "bash"  ? bash_of(commands)
                             : *shell == "zsh" ? zsh_of(commands)
                                               : fish_of(commands));
            return kGood;
          }};
}

Command add_man(CLI::App& program) {
  const auto name = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("man", "Print a manual page, as roff");
  app->group("");
  add_value(*app, "command", *name, "Command to describe; default: the program itself");
  return {app, [name, &program] {
            fmt::print("{}", manual_of(program, *name));
            return kGood;
          }};
}

}  // namespace mccl::cli::completion
