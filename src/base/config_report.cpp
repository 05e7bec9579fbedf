// Formats the settings for display, and for comparison between ranks.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/settings.h"
#include "base/value_text.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl {

namespace {

constexpr std::string_view kNotSet = "(not set)";
constexpr std::size_t kShortestGoodKey = 16;

/// Compares the values, not their texts, because the text of a secret would have to be erased.
bool have_same_value(const Config& a, const Config& b, const Setting& setting) {
  return std::visit([&](auto field) { return a.*field == b.*field; }, setting.field);
}

bool is_default(const Config& config, const Setting& setting) {
  return have_same_value(config, Config{}, setting);
}

/// Returns the text that displays the default value of a setting: "(not set)" if the value is empty
/// or -1, else the value itself.
std::string shown_default(const SettingInfo& info) {
  const bool stands_for_none = info.default_value.empty() || info.default_value == "-1";
  return std::string(stands_for_none ? kNotSet : std::string_view(info.default_value));
}

std::string meaning_with_caveat(const Setting& setting) {
  std::string text(setting.info.meaning);
  if (!setting.info.only_with.empty())
    text += fmt::format(". Only with {}", setting.info.only_with);
  return text;
}

/// True if the setting has an effect: it depends on no other setting, or the setting on which it
/// depends has the required value.
bool is_heard(const Config& config, const Setting& setting) {
  const std::string_view other = setting.info.only_with;
  const std::size_t equals = other.find('=');
  return other.empty() || config.get(other.substr(0, equals)) == other.substr(equals + 1);
}

using Environment = std::map<std::string, std::string>;

/// The settings in the file that MCCL_CONFIG refers to; empty if there is no such file or it cannot
/// be read.
std::optional<Config> config_of_file(const Environment& environment) {
  const auto path = environment.find(std::string(kConfigFileVariable));
  if (path == environment.end()) return {};
  try {
    return Config::from_environment({*path});
  } catch (const InvalidArgument&) {
    return {};
  }
}

bool has_value(const Environment& environment, const Setting& setting, const Config& config) {
  const auto variable = environment.find(std::string(setting.info.variable));
  if (variable == environment.end()) return false;
  try {
    Config given;
    assign(given, setting, variable->second, setting.info.variable);
    return have_same_value(given, config, setting);
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

std::string changed_settings(const Config& config, const Environment& environment) {
  const std::optional<Config> file = config_of_file(environment);
  std::string changed;
  for (const Setting& setting : setting_table()) {
    if (is_default(config, setting)) continue;
    std::string origin = "program";
    if (has_value(environment, setting, config)) {
      origin = setting.info.variable;
    } else if (file && have_same_value(*file, config, setting)) {
      origin = printable(environment.at(std::string(kConfigFileVariable)));
    }
    changed += fmt::format("{}{}={} ({}", changed.empty() ? "" : ", ", setting.info.name,
                           shown_value(config, setting), origin);
    if (!is_heard(config, setting))
      changed += fmt::format("; no effect without {}", setting.info.only_with);
    changed += ")";
  }
  return changed;
}

std::string shown_value(const Config& config, const Setting& setting) {
  if (setting.info.secret)
    return std::string(is_default(config, setting) ? kNotSet : std::string_view("(set)"));
  const std::string text = text_of(config, setting);
  return text == setting.info.default_value ? shown_default(setting.info) : printable(text);
}

std::string agreement_of(const Config& config) {
  std::string lines;
  for (const Setting& setting : setting_table())
    if (setting.info.must_agree)
      lines += fmt::format("{}={}\n", setting.info.name, printable(text_of(config, setting)));
  return lines;
}

std::string to_table(const Config& config) {
  std::size_t name_width = 0;
  for (const Setting& setting : setting_table())
    name_width = std::max(name_width, setting.info.name.size());
  std::string lines;
  for (const Setting& setting : setting_table())
    lines += fmt::format("{:<{}} = {} ({}; {})\n", setting.info.name, name_width,
                         shown_value(config, setting), setting.info.variable, setting.info.meaning);
  return lines;
}

std::vector<std::string> warnings_for(const Config& config) {
  std::vector<std::string> warnings;
  if (!config.job_key.empty() && config.job_key.size() < kShortestGoodKey) {
    warnings.push_back(fmt::format(
        "MCCL_JOB_KEY has {} characters, so few that it can be guessed; give every rank "
        "the output of `openssl rand -hex 32`",
        config.job_key.size()));
  }
  if (config.flight_recorder_signal != "none" && config.flight_recorder_file.empty()) {
    warnings.emplace_back(
        "MCCL_FLIGHT_RECORDER_SIGNAL has no effect, because MCCL_FLIGHT_RECORDER_FILE, the path of "
        "the file to write, is not set");
  }
  return warnings;
}

std::string settings_markdown() {
  std::string table =
      "| Variable | Default | Values | Meaning |\n"
      "|---|---|---|---|\n";
  for (const Setting& setting : setting_table()) {
    const SettingInfo& info = setting.info;
    const std::string shown = shown_default(info);
    table += fmt::format("| `{}` | {} | {} | {} |\n", info.variable,
                         shown == kNotSet ? shown : fmt::format("`{}`", shown), info.range,
                         meaning_with_caveat(setting));
  }
  table += fmt::format(
      "| `{}` | {} | a path | JSON file of settings, under their names in Python; the other "
      "variables override it |\n",
      kConfigFileVariable, kNotSet);
  table += fmt::format(
      "| `{}` | {} | true, false | Unchanged Python programs that import MLX run on MCCL; `mccl "
      "launch --mlx` sets it |\n",
      kMlxVariable, kNotSet);
  return table;
}

}  // namespace mccl
