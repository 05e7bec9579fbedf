#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

using nlohmann::json;

constexpr std::size_t kMostNesting = 64;

/// "line L, column C" of the last byte that the parser has read.
std::string position_in(std::string_view text, std::size_t bytes_read) {
  const std::string_view before =
      text.substr(0, std::min(text.size(), bytes_read == 0 ? 0 : bytes_read - 1));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // 0 in the first line: npos + 1 == 0
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

/// Checks a text while it is parsed, and stores no values. nlohmann's own parser with a callback
/// would take time quadratic in the length of a list.
class Checker : public nlohmann::json_sax<json> {
 public:
  /// Throws InvalidArgument. `found` describes what the parser found at the last byte that it read.
  using Refuse = std::function<void(std::size_t bytes_read, const std::string& found)>;

  /// `reached` returns the number of bytes that the parser has read. `text_size` is the length of
  /// the text.
  Checker(const std::function<std::size_t()>& reached, std::size_t text_size, Refuse refuse,
          const SeeKey& see_key)
      : reached_(reached), text_size_(text_size), refuse_(std::move(refuse)), see_key_(see_key) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(json::number_integer_t) override { return value(); }
  bool number_unsigned(json::number_unsigned_t) override { return value(); }
  bool number_float(json::number_float_t, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool binary(json::binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(std::string& key) override {
    value();
    if (keys_.size() == 1 && see_key_) see_key_(key);
    // Refuses duplicate keys, for which most JSON readers would silently take the last value.
    if (!keys_.back().insert(key).second)
      refuse_(reached_(), fmt::format("the key {} for the second time", in_quotes(key)));
    return true;
  }

  bool parse_error(std::size_t bytes_read, const std::string&,
                   const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error) == nullptr)
      refuse_(reached_(), "a number too large to represent");
    refuse_(bytes_read,
            bytes_read > text_size_ ? "the end of the file" : "something that is not JSON");
    return false;
  }

 private:
  bool value() const {
    if (keys_.size() > kMostNesting)
      refuse_(reached_(), fmt::format("brackets more than {} deep", kMostNesting));
    return true;
  }
  bool open() {
    value();
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::function<std::size_t()> reached_;
  const std::size_t text_size_;
  const Refuse refuse_;
  const SeeKey& see_key_;
  /// One set of keys for each object or list that is not closed yet.
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_json(std::string_view text, std::string_view origin, std::string_view expected,
                const SeeKey& see_key) {
  // Some of the parser's errors do not contain the position, but the stream knows it.
  std::istringstream input{std::string(text)};
  const auto reached = [&input] {
    return static_cast<std::size_t>(input.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
  };
  const auto refuse = [&](std::size_t bytes_read, const std::string& found) {
    throw InvalidArgument(fmt::format("{}, {}: expected {}; found {}",
                                      printable(origin, origin.size()),
                                      position_in(text, bytes_read), expected, found));
  };
  Checker checker(reached, text.size(), refuse, see_key);
  json::sax_parse(input, &checker);
  return json::parse(text);
}

}  // namespace mccl
