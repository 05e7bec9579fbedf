#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "base/settings.h"
#include "base/value_text.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl {

namespace {

using nlohmann::json;

constexpr std::string_view kExpected =
    R"(a JSON object of settings such as {"port_base": 29600, "log_level": "INFO"})";

json parse_settings(const std::string& text, const std::string& origin) {
  std::set<std::string_view> seen;
  // Refuses duplicate keys, of which the last would otherwise silently win.
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

/// The value as text. Throws InvalidArgument if its JSON type does not suit the setting.
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
  Config merged = *this;  // so that a faulty file changes nothing
  for (const auto& [key, value] : object.items()) {
    const Setting& setting = find_setting(key);
    const std::string label = fmt::format("{}: {}", origin, key);
    const std::string given = text_of_json(value, setting, label);
    refuse_empty_secret(setting, given, label);
    assign(merged, setting, given, label);
  }
  *this = merged;
}

}  // namespace mccl
