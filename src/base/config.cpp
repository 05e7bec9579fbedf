#include "mccl/config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <type_traits>

#include "base/environment.h"
#include "base/nearest.h"
#include "base/settings.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kLargestFile = std::size_t{1} << 20;

bool in_range(const Setting& setting, double value) {
  return value >= setting.minimum && value <= setting.maximum;
}

/// Splits a list at ", ".
std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    words.push_back(list.substr(0, list.find(", ")));
    list.remove_prefix(std::min(list.size(), words.back().size() + 2));
  }
  return words;
}

/// The word of the list that equals `text` except for case, in the list's spelling.
std::optional<std::string> word_of(std::string_view list, std::string_view text) {
  for (const std::string_view word : words_of(list)) {
    if (equal_ignoring_case(word, text)) return std::string(word);
  }
  return {};
}

// One overload per field type. Each returns nothing if the text is not a valid value.

std::optional<std::string> parse(const Setting& setting, std::string_view text, std::string*) {
  if (text.size() > kLongestText || has_control_characters(text)) return {};
  if (setting.kind == SettingKind::choice) return word_of(setting.info.range, text);
  if (setting.accepts && !text.empty() && !setting.accepts(text)) return {};
  return std::string(text);
}

std::optional<bool> parse(const Setting&, std::string_view text, bool*) {
  return parse_boolean(text);
}

std::optional<double> parse(const Setting& setting, std::string_view text, double*) {
  const std::optional<double> value = parse_number(text);
  if (!value || !in_range(setting, *value)) return {};
  return value;
}

std::optional<int> parse(const Setting& setting, std::string_view text, int*) {
  const auto value = parse_integer(text);
  if (!value || !in_range(setting, static_cast<double>(*value))) return {};
  return static_cast<int>(*value);
}

std::optional<std::size_t> parse(const Setting& setting, std::string_view text, std::size_t*) {
  if (setting.kind == SettingKind::bytes) {
    const auto value = parse_bytes(text);
    if (!value || !in_range(setting, static_cast<double>(*value))) return {};
    return static_cast<std::size_t>(*value);
  }
  const auto value = parse_integer(text);
  if (!value || !in_range(setting, static_cast<double>(*value))) return {};
  return static_cast<std::size_t>(*value);
}

std::string_view wanted(const Setting& setting) {
  if (setting.accepts != nullptr) return "one of";
  switch (setting.kind) {
    case SettingKind::text:
      return "text without control characters, at most 4096 bytes";
    case SettingKind::integer:
      return "an integer";
    case SettingKind::number:
      return "a number";
    case SettingKind::bytes:
      return "bytes, as an integer or with a unit of 1024 such as 256K or 4M";
    case SettingKind::boolean:
      return "true or false (1 or 0, yes or no, on or off)";
    case SettingKind::choice:
      return "one of";
  }
  return "";
}

[[noreturn]] void refuse(const Setting& setting, std::string_view text, std::string_view label) {
  const bool is_one_of = setting.kind == SettingKind::choice || setting.accepts != nullptr;
  const bool self_explaining =
      setting.kind == SettingKind::boolean || (setting.kind == SettingKind::text && !is_one_of);
  const std::string_view separator = is_one_of ? " " : ", ";
  const auto nearest = is_one_of ? nearest_of(text, words_of(setting.info.range)) : std::nullopt;
  const std::string advice =
      nearest ? fmt::format("did you mean {}? Correct it", *nearest) : "correct it";
  throw InvalidArgument(fmt::format(
      "{}: expected {}{}{}; found {}; {}, or leave it out for the default {}", printable(label),
      wanted(setting), self_explaining ? "" : separator, self_explaining ? "" : setting.info.range,
      setting.info.secret ? "a secret value" : in_quotes(text), advice,
      setting.info.default_value.empty() ? "(none)" : setting.info.default_value));
}

std::string text_of_value(const std::string& value) { return value; }
std::string text_of_value(bool value) { return value ? "true" : "false"; }
template <typename Number>
std::string text_of_value(Number value) {
  return fmt::format("{}", value);
}

std::string read_file(const std::string& path) {
  const auto refuse_file = [&](std::string_view reason) {
    throw InvalidArgument(
        fmt::format("{}: expected the path of a JSON file of settings, at most 1 MiB; found {}: {}",
                    kConfigFileVariable, in_quotes(path), reason));
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_file(errno != 0 ? std::strerror(errno) : "cannot be opened");
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) refuse_file(errno != 0 ? std::strerror(errno) : "cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) refuse_file("it is larger");
  return text;
}

int master_port_of(const std::map<std::string, std::string>& environment) {
  const auto found = environment.find("MASTER_PORT");
  if (found == environment.end()) return 0;
  const auto port = parse_integer(found->second);
  return port && *port > 0 && *port <= 65535 ? static_cast<int>(*port) : 0;
}

}  // namespace

void assign(Config& config, const Setting& setting, std::string_view text, std::string_view label) {
  const auto note_that_it_is_given = [&] {
    if (setting.given) (config.*setting.given).yes = true;
  };
  if (text == setting.info.default_value) {
    const Config defaults;
    std::visit([&](auto field) { config.*field = defaults.*field; }, setting.field);
    return note_that_it_is_given();
  }
  std::visit(
      [&](auto field) {
        using Value = std::remove_reference_t<decltype(config.*field)>;
        auto value = parse(setting, text, static_cast<Value*>(nullptr));
        if (!value) refuse(setting, text, label);
        config.*field = *std::move(value);
      },
      setting.field);
  note_that_it_is_given();
}

void refuse_empty_secret(const Setting& setting, std::string_view text, std::string_view label) {
  if (!setting.info.secret || !text.empty()) return;
  throw InvalidArgument(
      fmt::format("{} is set and empty: give every rank the same value, such as the output of "
                  "`openssl rand -hex 32`, or unset it",
                  printable(label)));
}

void refuse_empty_secret(std::string_view name, std::string_view value) {
  refuse_empty_secret(find_setting(name), value, name);
}

std::string text_of(const Config& config, const Setting& setting) {
  return std::visit([&](auto field) { return text_of_value(config.*field); }, setting.field);
}

Config Config::from_environment() { return from_environment(process_environment()); }

Config Config::from_environment(const std::map<std::string, std::string>& environment) {
  Config config;
  config.master_port = master_port_of(environment);
  const auto file = environment.find(std::string(kConfigFileVariable));
  if (file != environment.end()) config.merge_json(read_file(file->second), file->second);
  for (const auto& [variable, value] : environment) {
    const bool is_no_field = variable == kConfigFileVariable || variable == kMlxVariable;
    if (!variable.starts_with(kVariablePrefix) || is_no_field) continue;
    const Setting& setting = find_setting(variable);
    refuse_empty_secret(setting, value, variable);
    assign(config, setting, value, variable);
  }
  return config;
}

void Config::set(std::string_view name, std::string_view value) {
  assign(*this, find_setting(name), value, name);
}

std::string Config::get(std::string_view name) const { return text_of(*this, find_setting(name)); }

std::map<std::string, std::string> Config::texts() const {
  std::map<std::string, std::string> texts;
  for (const Setting& setting : setting_table()) {
    if (setting.given && !(this->*setting.given).yes) continue;
    texts.emplace(setting.info.name, text_of(*this, setting));
  }
  return texts;
}

}  // namespace mccl
