// Reads and checks the fields of JSON text that a rank has written.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli::sight {

using nlohmann::json;

inline constexpr int kMostRanks = 1 << 20;

/// Reads and checks values of a JSON object. Every function throws InvalidArgument for an invalid
/// value; the message begins with `who`. The JSON object and `who` must outlive this object.
class Fields {
 public:
  Fields(const json& object, std::string_view who) : object_(object), who_(who) {
    if (!object.is_object()) refuse("object");
  }
  void require_format(std::string_view format) const {
    if (text("format") != format || integer("version", 0, INT32_MAX) != 1) refuse("version");
  }
  std::string text(const char* name) const {
    const json& value = at(name);
    if (!value.is_string()) refuse(name);
    return printable(value.get<std::string>());
  }
  bool flag(const char* name) const {
    const json& value = at(name);
    if (!value.is_boolean()) refuse(name);
    return value.get<bool>();
  }
  double number(const char* name) const {
    const json& value = at(name);
    if (!value.is_number()) refuse(name);
    return value.get<double>();
  }
  long long integer(const char* name, long long least, long long most) const {
    return integer_of(at(name), name, least, most);
  }
  std::vector<int> ranks(const char* name) const {
    std::vector<int> ranks;
    for (const json& each : list(name))
      ranks.push_back(static_cast<int>(integer_of(each, name, 0, kMostRanks)));
    return ranks;
  }
  const json& list(const char* name) const {
    const json& value = at(name);
    if (!value.is_array()) refuse(name);
    return value;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw InvalidArgument(
        fmt::format("{}: expected a valid \"{}\"; the text is damaged, or was written by another "
                    "version of MCCL",
                    who_, what));
  }

 private:
  const json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(name);
    return *found;
  }
  long long integer_of(const json& value, const char* name, long long least, long long most) const {
    if (!value.is_number_integer()) refuse(name);
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) refuse(name);
    const auto number = value.get<std::int64_t>();
    if (number < least || number > most) refuse(name);
    return number;
  }

  const json& object_;
  const std::string_view who_;
};

}  // namespace mccl::cli::sight
