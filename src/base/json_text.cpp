#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

using nlohmann::json;

constexpr int kMostNesting = 64;

/// Walks over text and tells how far the parser has come: not all of its complaints do.
class Walk {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Walk(const char* at, const char** reached) : at_(at), reached_(reached) {}
  const char& operator*() const { return *at_; }
  Walk& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  Walk operator++(int) {
    const Walk before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Walk& a, const Walk& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// "line L, column C" of the byte before which parsing stopped.
std::string position_in(std::string_view text, std::size_t bytes_read) {
  const std::string_view before =
      text.substr(0, std::min(text.size(), bytes_read == 0 ? 0 : bytes_read - 1));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return fmt::format("line {}, column {}", line, before.size() - line_start + 1);
}

struct TooDeep {};

}  // namespace

json parse_json(std::string_view text, std::string_view origin, std::string_view expected,
                const SeeKey& see_key) {
  const char* reached = text.data();
  const auto refuse = [&](std::size_t bytes_read, std::string_view found) {
    throw InvalidArgument(fmt::format("{}, {}: expected {}; found {}", printable(origin),
                                      position_in(text, bytes_read), expected, found));
  };
  const auto read = [&] { return static_cast<std::size_t>(reached - text.data()); };
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMostNesting) throw TooDeep();
    if (event == json::parse_event_t::key && depth == 1 && see_key)
      see_key(parsed.get_ref<const std::string&>());
    return true;
  };
  try {
    return json::parse(Walk(text.data(), &reached), Walk(text.data() + text.size(), &reached),
                       check);
  } catch (const TooDeep&) {
    refuse(read(), fmt::format("brackets more than {} deep", kMostNesting));
  } catch (const json::parse_error& error) {
    refuse(error.byte,
           error.byte > text.size() ? "the end of the file" : "something that is not JSON");
  } catch (const json::exception&) {
    refuse(read(), "a number too large for a computer's");
  }
  return {};
}

}  // namespace mccl
