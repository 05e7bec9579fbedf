// The table of settings, including internal data that SettingInfo does not have.
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
                                  double Config::*, bool Config::*, SecretBytes Config::*>;

struct Setting {
  SettingInfo info = {};
  SettingKind kind = SettingKind::text;
  SettingField field = {};
  /// Inclusive range of a setting of kind integer, number or bytes. The default is always valid,
  /// even outside the range.
  double minimum = 0;
  double maximum = 0;
  /// Flag that is set together with the field; null for most settings. Used where an explicit value
  /// must be distinguished from the default, which may be replaced by a better one.
  Given Config::*given = nullptr;
  /// Returns true if a text is valid. Empty text is always valid. Null if every text is valid.
  bool (*accepts)(std::string_view text) = nullptr;
};

/// Environment variables that are not fields of Config. kConfigFileVariable holds the path of the
/// JSON file of settings. kMlxVariable makes Python programs that use MLX run on MCCL. All
/// variables of MCCL begin with kVariablePrefix.
inline constexpr std::string_view kConfigFileVariable = "MCCL_CONFIG";
inline constexpr std::string_view kMlxVariable = "MCCL_MLX";
inline constexpr std::string_view kVariablePrefix = "MCCL_";

std::span<const Setting> setting_table();

/// Finds a setting by name or variable. Throws InvalidArgument if there is none; the message
/// suggests the nearest name.
const Setting& find_setting(std::string_view name);

/// Checks `text` and stores its value. `label` names the source of the text in error messages, such
/// as a variable, or a file and a key in it. Throws InvalidArgument if the text is not a valid
/// value.
void assign(Config& config, const Setting& setting, std::string_view text, std::string_view label);

/// Throws InvalidArgument if the text of a secret is empty, which is usually a mistake in a script.
void refuse_empty_secret(const Setting& setting, std::string_view text, std::string_view label);

/// The value as text that assign() accepts.
std::string text_of(const Config& config, const Setting& setting);

/// Lists the settings that differ from their defaults as "name=value (origin)", separated by
/// commas; empty if there are none. The origin is the variable in `environment`, or the file to
/// which MCCL_CONFIG refers there, or "program" if neither has the value. The list marks settings
/// that have no effect without another setting.
std::string changed_settings(const Config& config,
                             const std::map<std::string, std::string>& environment);

/// The value for display: escaped and truncated to one line; "(set)" or "(not set)" for a secret.
std::string shown_value(const Config& config, const Setting& setting);

/// Return, in bytes, the maximum size of a message on the wire, and the buffer size to request for
/// sockets (0 for the kernel's default). Each value depends on link_profile if its own setting is
/// not given.
std::size_t chunk_bytes_of(const Config& config);
std::size_t socket_buffer_bytes_of(const Config& config);
/// Returns the time in seconds after which a broken connection is no longer replaced, 0 if never:
/// link_retry or, if that is negative, liveness_interval.
inline double link_retry_of(const Config& config) {
  return config.link_retry < 0 ? config.liveness_interval : config.link_retry;
}

}  // namespace mccl
