#include "cli/launch/rank_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/value_text.h"

namespace mccl::cli::launch {
namespace {

constexpr std::string_view kBegin = " begin";
constexpr std::string_view kExit = " exit ";
/// Maximum length of a message after the token, in bytes.
constexpr std::size_t kLongestWord = 16;
constexpr std::size_t kMostDropped = std::size_t{64} << 10;

/// Returns the length of the longest suffix of `text` that is a proper prefix of `word`.
std::size_t begun_at_end(std::string_view text, std::string_view word) {
  std::size_t length = std::min(text.size(), word.size() - 1);
  while (length > 0 && !word.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

}  // namespace

std::string begin_word(std::string_view token) { return fmt::format("{}{}\n", token, kBegin); }

std::string exit_word(std::string_view token, std::string_view status) {
  return fmt::format("{}{}{}\n", token, kExit, status);
}

std::size_t RankWords::put_held(std::span<char> space) {
  const std::size_t bytes = held_.size();
  std::memcpy(space.data(), held_.data(), bytes);
  held_.clear();
  return bytes;
}

std::size_t RankWords::filter(std::span<char> bytes) {
  if (token_.empty()) return bytes.size();
  std::string_view rest(bytes.data(), bytes.size());
  char* kept = bytes.data();
  const auto keep = [&](std::size_t count) {
    if (begun_) {
      std::memmove(kept, rest.data(), count);
      kept += count;
    } else if (dropped_.size() < kMostDropped) {
      dropped_.append(rest.substr(0, count));
    }
    rest.remove_prefix(count);
  };
  for (;;) {
    const std::size_t at = rest.find(token_);
    if (at == rest.npos) {
      const std::size_t held = begun_at_end(rest, token_);
      keep(rest.size() - held);
      break;
    }
    keep(at);
    const std::size_t end = rest.find('\n', token_.size());
    if (end == rest.npos && rest.size() < token_.size() + kLongestWord) break;
    std::string_view word = rest.substr(token_.size(), end - token_.size());
    if (word.ends_with('\r')) word.remove_suffix(1);
    const auto status = word.starts_with(kExit) ? parse_integer(word.substr(kExit.size()))
                                                : std::optional<std::int64_t>();
    if (end == rest.npos || (word != kBegin && !status)) {
      keep(token_.size());
      continue;
    }
    if (word == kBegin) begun_ = true;
    if (status) status_ = static_cast<int>(*status);
    rest.remove_prefix(end + 1);
  }
  held_.assign(rest);
  return static_cast<std::size_t>(kept - bytes.data());
}

std::string RankWords::rest() {
  std::string text = begun_ ? std::string() : std::exchange(dropped_, {});
  return text + std::exchange(held_, {});
}

}  // namespace mccl::cli::launch
