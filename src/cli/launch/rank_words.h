// What the script of a rank on another machine says amid the rank's own output: that the program
// begins, and how it ended.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mccl::cli::launch {

/// The lines of the script, each behind a token that nothing else of the output holds. They may
/// follow text that has no end of line.
std::string begin_word(std::string_view token);
std::string exit_word(std::string_view token, std::string_view status);

/// Takes those lines out of one stream. Default-constructed it lets everything pass.
class RankWords {
 public:
  RankWords() = default;
  /// `begins`: what comes before begin_word is of the host's start-up files, and is dropped.
  RankWords(std::string token, bool begins) : token_(std::move(token)), begun_(!begins) {}

  /// Puts what was held back into `space`, before what is read next. Returns its bytes.
  std::size_t put_held(std::span<char> space);
  /// Removes the script's lines from `bytes`, and what may become one of them. Returns how many
  /// bytes are left.
  std::size_t filter(std::span<char> bytes);
  /// At the end of the stream: what was held back.
  std::string rest();
  /// The rank's exit status, once the stream has told it.
  const std::optional<int>& status() const { return status_; }

 private:
  std::string token_;  ///< Empty: there are no such lines.
  bool begun_ = true;
  std::optional<int> status_;
  std::string held_;     ///< May be the beginning of a line of the script.
  std::string dropped_;  ///< Before the program began; of use if it never does.
};

}  // namespace mccl::cli::launch
