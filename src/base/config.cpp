#include "mccl/config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>

#include "base/environment.h"
#include "base/json_text.h"
#include "base/nearest.h"
#include "base/secret.h"
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

/// Returns the word of the list that equals `text` if case is ignored, in the list's spelling.
std::optional<std::string> word_of(std::string_view list, std::string_view text) {
  for (const std::string_view word : words_of(list)) {
    if (equal_ignoring_case(word, text)) return std::string(word);
  }
  return {};
}

bool is_one_line(std::string_view text) {
  return text.size() <= kLongestText && !has_control_characters(text);
}

// One overload per field type. Each returns nothing if the text is not a valid value.

std::optional<SecretBytes> parse(const Setting&, std::string_view text, SecretBytes*) {
  if (!is_one_line(text)) return {};
  return text;
}

std::optional<std::string> parse(const Setting& setting, std::string_view text, std::string*) {
  if (!is_one_line(text)) return {};
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

template <typename Integer>
std::optional<Integer> parse(const Setting& setting, std::string_view text, Integer*) {
  const auto checked = [&](const auto& value) -> std::optional<Integer> {
    if (!value || !in_range(setting, static_cast<double>(*value))) return {};
    return static_cast<Integer>(*value);
  };
  return setting.kind == SettingKind::bytes ? checked(parse_bytes(text))
                                            : checked(parse_integer(text));
}

/// Descriptions of a valid value for messages, indexed by SettingKind. `choice` has no description,
/// because messages list the words of its range.
constexpr std::string_view kExpectations[] = {
    "text without control characters, at most 4096 bytes", "an integer", "a number",
    "bytes, as an integer or with a unit of 1024 such as 256K or 4M",
    "true or false (1 or 0, yes or no, on or off)"};

[[noreturn]] void refuse(const Setting& setting, std::string_view text, std::string_view label) {
  const bool is_one_of = setting.kind == SettingKind::choice || setting.accepts != nullptr;
  const bool is_list = setting.info.range.find(',') != std::string_view::npos;
  std::string_view wanted = is_list ? "one of " : "";
  if (!is_one_of) wanted = kExpectations[static_cast<std::size_t>(setting.kind)];
  const bool self_explaining =
      setting.kind == SettingKind::boolean || (setting.kind == SettingKind::text && !is_one_of);
  const std::string_view separator = is_one_of ? "" : ", ";
  const auto nearest = is_one_of ? nearest_of(text, words_of(setting.info.range)) : std::nullopt;
  const std::string advice =
      nearest ? fmt::format("did you mean {}? Correct it", *nearest) : "correct it";
  throw InvalidArgument(fmt::format(
      "{}: expected {}{}{}; found {}; {}, or leave it out for the default {}", printable(label),
      wanted, self_explaining ? "" : separator, self_explaining ? "" : setting.info.range,
      setting.info.secret ? "a secret value" : in_quotes(text), advice,
      setting.info.default_value.empty() ? "(none)" : setting.info.default_value));
}

std::string text_of_value(const std::string& value) { return value; }
std::string text_of_value(const SecretBytes& value) { return std::string(value.view()); }
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
  if (text.size() > kLargestFile) refuse_file("the file is larger");
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

Config Config::from_environment() {
  protect_job_key();
  return from_environment(process_environment());
}

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

namespace {

using nlohmann::json;

constexpr std::string_view kExpected =
    R"(a JSON object of settings such as {"port_base": 29600, "log_level": "INFO"})";

json parse_settings(const std::string& text, const std::string& origin) {
  std::set<std::string_view> seen;
  // Refuses duplicate keys, because the last value would silently replace the earlier ones.
  const auto see_key = [&](const std::string& key) {
    try {
      const std::string_view name = find_setting(key).info.name;
      if (!seen.insert(name).second)
        throw InvalidArgument(
            fmt::format("the setting {} is given twice; leave one of them out", name));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}: {}", printable(origin), error.what()));
    }
  };
  json parsed = parse_json(text, origin, kExpected, see_key);
  if (!parsed.is_object()) {
    throw InvalidArgument(fmt::format("{}, line 1: expected {}; found a JSON {}", printable(origin),
                                      kExpected, parsed.type_name()));
  }
  return parsed;
}

/// The value as text. Throws InvalidArgument if the JSON type of the value does not suit the
/// setting.
std::string text_of_json(const json& value, const Setting& setting, std::string_view label) {
  if (value.is_string()) return value.get<std::string>();
  const bool numeric = setting.kind == SettingKind::integer ||
                       setting.kind == SettingKind::number || setting.kind == SettingKind::bytes;
  const bool boolean = setting.kind == SettingKind::boolean;
  if ((value.is_number() && numeric) || (value.is_boolean() && boolean)) return value.dump();
  throw InvalidArgument(fmt::format("{}: expected a JSON {}; found a JSON {}", printable(label),
                                    numeric   ? "number or string"
                                    : boolean ? "boolean or string"
                                              : "string",
                                    value.type_name()));
}

}  // namespace

void Config::merge_json(const std::string& text, const std::string& origin) {
  const json object = parse_settings(text, origin);
  Config merged = *this;  // a copy, so that an invalid object changes nothing
  for (const auto& [key, value] : object.items()) {
    const Setting& setting = find_setting(key);
    const std::string label = fmt::format("{}: {}", origin, key);
    const std::string given = text_of_json(value, setting, label);
    refuse_empty_secret(setting, given, label);
    assign(merged, setting, given, label);
  }
  *this = merged;
}

LogOptions log_options(const Config& config) {
  return {config.log_level, config.log_format, config.log_file, config.log_file_bytes};
}

std::size_t chunk_bytes_of(const Config& config) {
  // A C++ program may assign chunk_bytes directly, which does not set chunk_bytes_given. Any value
  // other than the default therefore also counts as given.
  const bool given = config.chunk_bytes_given.yes || config.chunk_bytes != Config{}.chunk_bytes;
  // On a cable as fast as Thunderbolt, messages must be larger to make the fixed cost per message
  // negligible.
  const bool is_fast = config.link_profile == "thunderbolt";
  return is_fast && !given ? std::size_t{8} << 20 : config.chunk_bytes;
}

std::size_t socket_buffer_bytes_of(const Config& config) {
  if (config.socket_buffer_bytes > 0) return config.socket_buffer_bytes;
  return config.link_profile == "thunderbolt" ? std::size_t{4} << 20 : 0;
}

}  // namespace mccl
