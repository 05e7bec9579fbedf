#include "cli/command.h"

#include <utility>

namespace mccl::cli {
namespace {

std::string nearest_flag(std::string_view name, const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& flag : option->get_lnames()) flags.push_back("--" + flag);
    for (const std::string& flag : option->get_snames()) flags.push_back("-" + flag);
  }
  return std::string(
      nearest_of(name, std::vector<std::string_view>(flags.begin(), flags.end())).value_or(""));
}

std::string unknown_flag(const CLI::App& command, Words words,
                         std::span<const OtherName> other_names) {
  const std::vector<std::string> unknown = command.remaining();
  for (const std::string_view word : words) {
    if (word == "--") break;
    const std::string_view name = word.substr(0, word.find('='));
    const auto other = std::ranges::find(other_names, name, &OtherName::theirs);
    std::string meant;
    if (other != other_names.end())
      meant = other->ours;
    else if (word.starts_with('-') && std::ranges::find(unknown, word) != unknown.end())
      meant = nearest_flag(name, command);
    else
      continue;
    if (!meant.empty()) meant = fmt::format("; did you mean \"{}\"?", meant);
    return fmt::format("{} is not a flag{}", in_quotes(name), meant);
  }
  return {};
}

/// CLI11's messages begin with the first long name of an option. Uses the short name if the user
/// typed that.
std::string named_as_typed(std::string message, const CLI::App& command, Words words) {
  const std::string name = message.substr(0, message.find_first_of(": "));
  const CLI::Option* option = command.get_option_no_throw(name);
  const auto is_typed = [&](std::string_view flag) {
    return std::ranges::any_of(words,
                               [&](std::string_view word) { return word.starts_with(flag); });
  };
  if (option == nullptr || option->get_snames().empty() || is_typed(name)) return message;
  const std::string brief = "-" + option->get_snames().front();
  return is_typed(brief) ? message.replace(0, name.size(), brief) : message;
}

}  // namespace

ValueCheck integer_between(std::int64_t least, std::int64_t most) {
  return [least, most](const std::string& text) -> std::string {
    const auto value = parse_integer(text);
    if (value && *value >= least && *value <= most) return {};
    return fmt::format("expected an integer from {} to {}; found {}", least, most, in_quotes(text));
  };
}

ValueCheck number_between(double least, double most) {
  return [least, most](const std::string& text) -> std::string {
    const auto value = parse_number(text);
    if (value && *value >= least && *value <= most) return {};
    // Ten digits are enough for all bounds. Fewer digits would turn large bounds into forms such as
    // 3.15e+07.
    return fmt::format("expected a number from {:.10g} to {:.10g}; found {}", least, most,
                       in_quotes(text));
  };
}

ValueCheck one_of(std::vector<std::string_view> names) {
  return [names = std::move(names)](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return {};
    return fmt::format("{} is not known; {}", in_quotes(text), choices_near(text, names));
  };
}

std::string not_empty(const std::string& text) {
  return text.empty()
             ? "the value is empty; is a shell variable unset? Omit the flag to use its default"
             : "";
}

void add_host_flags(CLI::App& app, WhichHosts& which, const std::string& patience) {
  CLI::Option* hosts = add_value(app, "--hosts LIST", which.hosts,
                                 "Machines: [user@]name[:port], separated by commas; default\n"
                                 "127.0.0.1 (this machine)",
                                 not_empty);
  add_value(app, "--hostfile FILE", which.hostfile, "JSON file of machines", not_empty)
      ->excludes(hosts);
  add_value(app, "--user NAME", which.user, "User to log in as, for hosts without a user",
            not_empty);
  add_value(app, "--ssh-arg ARG", which.ssh_arguments,
            "One more argument for ssh; may be repeated");
  add_value(app, "--patience S", which.patience,
            fmt::format("Seconds that {}; default {}", patience, which.patience),
            integer_between(1, 3600));
}

launch::Hostfile hosts_of(const WhichHosts& which, std::vector<Host> usual) {
  launch::Hostfile file;
  file.hosts = std::move(usual);
  if (!which.hostfile.empty()) file = launch::read_hostfile(which.hostfile);
  if (!which.hosts.empty()) file.hosts = parse_hosts("--hosts", which.hosts);
  for (Host& host : file.hosts)
    if (!which.user.empty() && host.user.empty() && !is_here(host)) host.user = which.user;
  return file;
}

std::string complaint_of(const CLI::ParseError& error, const CLI::App& command, Words words,
                         std::span<const OtherName> other_names) {
  std::string text = named_as_typed(printable(error.what()), command, words);
  // CLI11's text for a flag without its value is "--hostfile: 1 required TEXT missing".
  if (text.ends_with(" missing") && text.find(": 1 required ") != text.npos)
    text = text.substr(0, text.find(": 1 required ")) + " needs a value";
  if (std::string flag = unknown_flag(command, words, other_names); !flag.empty())
    text = std::move(flag);
  return fmt::format("{} (\"{}{} --help\" explains all flags)", text,
                     command.get_parent() == nullptr ? "" : "mccl ", command.get_name());
}

std::size_t end_of_flags(const CLI::App& command, Words words) {
  std::size_t at = 0;
  while (at < words.size()) {
    const std::string_view word = words[at];
    if (word == "--") return at + 1;
    if (!word.starts_with('-') || word == "-") return at;
    // In -n4 and --number=4, the value is part of the word.
    const bool whole = word.starts_with("--") || word.size() == 2;
    const CLI::Option* option = command.get_option_no_throw(std::string(word));
    at += whole && option != nullptr && option->get_items_expected_max() > 0 ? 2 : 1;
  }
  return words.size();
}

}  // namespace mccl::cli
