#include "cli/launch/lines.h"

#include <algorithm>
#include <cstring>

namespace mccl::cli::launch {
namespace {

constexpr std::size_t kLeastSpace = std::size_t{64} << 10;
constexpr std::size_t kUsualSpace = std::size_t{256} << 10;
constexpr std::size_t kLongestCharacter = 4;

/// Returns the number of bytes in the UTF-8 character that begins with `c`. Returns 0 if no
/// character begins with it.
std::size_t character_length(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c < 0xe0) return 2;
  if (c >= 0xe0 && c < 0xf0) return 3;
  if (c >= 0xf0 && c < 0xf5) return 4;
  return 0;
}

}  // namespace

std::size_t whole_characters(std::string_view text) {
  const std::size_t most = std::min(text.size(), kLongestCharacter - 1);
  for (std::size_t back = 1; back <= most; ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xc0) == 0x80) continue;
    return character_length(c) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::span<char> Lines::space() {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < kLeastSpace) bytes_.resize(std::max(2 * end_, kUsualSpace));
  return std::span(bytes_).subspan(end_);
}

std::string_view Lines::take(std::size_t bytes) {
  const std::string_view taken = rest().substr(0, bytes);
  begin_ += taken.size();
  searched_ = 0;
  return taken;
}

std::string_view Lines::take_lines() {
  const std::string_view unsearched = rest().substr(searched_);
  const std::size_t last = unsearched.rfind('\n');
  if (last != std::string_view::npos) {
    const std::string_view taken = take(searched_ + last + 1);
    searched_ = rest().size();
    return taken;
  }
  searched_ = rest().size();
  return searched_ < kLongest ? std::string_view() : take_characters();
}

std::string_view Lines::take_characters() { return take(whole_characters(rest())); }

std::string_view Lines::take_rest() { return take(rest().size()); }

void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines) {
  while (!lines.empty()) {
    const void* end = std::memchr(lines.data(), '\n', lines.size());
    const std::size_t length =
        end == nullptr ? lines.size()
                       : static_cast<std::size_t>(static_cast<const char*>(end) - lines.data()) + 1;
    to += prefix;
    to += lines.substr(0, length);
    lines.remove_prefix(length);
  }
}

}  // namespace mccl::cli::launch
