// The table of settings with what the library needs to know of each beyond SettingInfo.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "mccl/config.h"

namespace mccl {

/// `bytes` is an integer that may be written with a unit; `choice` is one of the words in `range`.
enum class SettingKind { text, integer, number, bytes, boolean, choice };

using SettingField = std::variant<std::string Config::*, int Config::*, std::size_t Config::*,
                                  double Config::*, bool Config::*>;

struct Setting {
  SettingInfo info = {};
  SettingKind kind = SettingKind::text;
  SettingField field = {};
  /// For integer, number and bytes. The default is always valid, also outside these.
  double minimum = 0;
  double maximum = 0;
  /// Set with the field, for one whose default may give way to what suits better; else null.
  Given Config::*given = nullptr;
  /// For text that must be something in particular, or empty; else null.
  bool (*accepts)(std::string_view text) = nullptr;
};

/// Variables of the environment that are no field of Config: the first names the JSON file of
/// settings, and the second has Python programs of MLX run on MCCL.
inline constexpr std::string_view kConfigFileVariable = "MCCL_CONFIG";
inline constexpr std::string_view kMlxVariable = "MCCL_MLX";
inline constexpr std::string_view kVariablePrefix = "MCCL_";

std::span<const Setting> setting_table();

/// By name or variable. Throws InvalidArgument with the nearest name.
const Setting& find_setting(std::string_view name);

/// Checks `text` and stores it. `label` is what the message calls the setting, such as the variable
/// or the file and key it came from. Throws InvalidArgument.
void assign(Config& config, const Setting& setting, std::string_view text, std::string_view label);

/// Who gives a secret means to have one: an empty one is a script's slip. Throws InvalidArgument.
void refuse_empty_secret(const Setting& setting, std::string_view text, std::string_view label);

/// The value as text that `assign` understands.
std::string text_of(const Config& config, const Setting& setting);

/// "name=value (origin)" of each setting that differs from its default, separated by commas; empty
/// where none does. The origin is the variable of `environment`, the file that MCCL_CONFIG names
/// there, or "program" for a value that neither has. A setting that has no effect without another
/// says so.
std::string changed_settings(const Config& config,
                             const std::map<std::string, std::string>& environment);

/// What a person may be shown: escaped and cut to a line; "(set)" or "(not set)" for a secret.
std::string shown_value(const Config& config, const Setting& setting);

}  // namespace mccl
