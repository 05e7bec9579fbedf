// Reads and checks the fields of JSON text that another program has written.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl::cli {

/// Reads and checks values of a JSON object. Every function throws InvalidArgument for an invalid
/// value; the message begins with `who`. The JSON object and `who` must outlive this object.
class Fields {
 public:
  static constexpr int kMostRanks = 1 << 20;

  Fields(const nlohmann::json& object, std::string_view who) : object_(object), who_(who) {
    if (!object.is_object()) refuse("object");
  }
  void require_format(std::string_view format) const {
    if (text("format") != format || integer("version", 0, INT32_MAX) != 1) refuse("version");
  }
  bool has(const char* name) const { return object_.contains(name); }
  const nlohmann::json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(name);
    return *found;
  }
  /// Returns the text for display: escaped, and cut after 4 KiB.
  std::string text(const char* name) const { return printable(raw_text(name), kLongestText); }
  /// Returns the text as it was written.
  const std::string& raw_text(const char* name) const {
    const nlohmann::json& value = at(name);
    if (!value.is_string()) refuse(name);
    return value.get_ref<const std::string&>();
  }
  bool flag(const char* name) const {
    const nlohmann::json& value = at(name);
    if (!value.is_boolean()) refuse(name);
    return value.get<bool>();
  }
  double number(const char* name, double least = std::numeric_limits<double>::lowest(),
                double most = std::numeric_limits<double>::max()) const {
    const nlohmann::json& value = at(name);
    if (!value.is_number()) refuse(name);
    const auto number = value.get<double>();
    if (!(number >= least && number <= most)) refuse(name);
    return number;
  }
  long long integer(const char* name, long long least, long long most) const {
    return integer_of(at(name), name, least, most);
  }
  /// Returns the integers of a list. Each is from 0 to `most`.
  std::vector<int> integers(const char* name, int most) const {
    std::vector<int> integers;
    for (const nlohmann::json& each : list(name))
      integers.push_back(static_cast<int>(integer_of(each, name, 0, most)));
    return integers;
  }
  const nlohmann::json& list(const char* name) const {
    const nlohmann::json& value = at(name);
    if (!value.is_array()) refuse(name);
    return value;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw InvalidArgument(
        fmt::format("{}: expected a valid \"{}\"; the text is damaged, or was written by another "
                    "program or another version of MCCL",
                    who_, what));
  }

 private:
  static constexpr std::size_t kLongestText = 4096;

  long long integer_of(const nlohmann::json& value, const char* name, long long least,
                       long long most) const {
    if (!value.is_number_integer()) refuse(name);
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) refuse(name);
    const auto number = value.get<std::int64_t>();
    if (number < least || number > most) refuse(name);
    return number;
  }

  const nlohmann::json& object_;
  const std::string_view who_;
};

}  // namespace mccl::cli
