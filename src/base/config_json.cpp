#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/settings.h"
#include "base/value_text.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl {

namespace {

using nlohmann::json;

constexpr std::string_view kExample = R"({"port_base": 29600, "log_level": "INFO"})";

/// "line L, column C" of the byte before which parsing stopped.
std::string position_in(std::string_view text, std::size_t bytes_read) {
  const std::string_view before =
      text.substr(0, std::min(text.size(), bytes_read == 0 ? 0 : bytes_read - 1));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

[[noreturn]] void refuse_file(const std::string& origin, std::string_view where,
                              std::string_view found) {
  throw InvalidArgument(
      fmt::format("{}{}{}: expected a JSON object of settings such as {}; found {}",
                  printable(origin), where.empty() ? "" : ", ", where, kExample, found));
}

json parse_object(const std::string& text, const std::string& origin) {
  std::set<std::string_view> seen;
  // A key given twice would otherwise keep its last value in silence.
  const auto check_key = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth != 1) return true;
    const std::string_view name = find_setting(parsed.get_ref<const std::string&>()).info.name;
    if (!seen.insert(name).second)
      throw InvalidArgument(
          fmt::format("the setting {} is given twice; leave one of them out", name));
    return true;
  };
  try {
    return json::parse(text, check_key);
  } catch (const json::parse_error& error) {
    // The parser's own words quote the file, which may hold the job's key.
    refuse_file(origin, position_in(text, error.byte),
                error.byte > text.size() ? "the end of the file" : "something that is not JSON");
  } catch (const json::exception&) {
    refuse_file(origin, "", "a number that no setting can hold");
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", printable(origin), error.what()));
  }
}

/// The value as text, where its JSON type can stand for the setting's type.
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
  const json object = parse_object(text, origin);
  if (!object.is_object())
    refuse_file(origin, "line 1", fmt::format("a JSON {}", object.type_name()));
  Config merged = *this;  // so that a file with a fault changes nothing
  for (const auto& [key, value] : object.items()) {
    const Setting& setting = find_setting(key);
    const std::string label = fmt::format("{}: {}", origin, key);
    assign(merged, setting, text_of_json(value, setting, label), label);
  }
  *this = merged;
}

}  // namespace mccl
