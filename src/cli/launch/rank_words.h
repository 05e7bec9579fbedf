// Messages that the shell wrapper of a remote rank (rank_script()) writes into the rank's output:
// that the program begins, and how it ended.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mccl::cli::launch {

/// Return the lines that the script writes: begin_word() when the program begins, exit_word() when
/// it has ended. Each line begins with a token that nothing else in the output contains. It may
/// follow text without a line end.
std::string begin_word(std::string_view token);
std::string exit_word(std::string_view token, std::string_view status);

/// Removes those lines from one stream. A default-constructed object lets everything pass.
class RankWords {
 public:
  RankWords() = default;
  /// If `begins` is true, everything before begin_word is output of the host's start-up files and
  /// is dropped.
  RankWords(std::string token, bool begins) : token_(std::move(token)), begun_(!begins) {}

  /// Copies the bytes that were held back to the start of `space`; the next read follows them.
  /// Returns their number.
  std::size_t put_held(std::span<char> space);
  /// Removes the script's lines from `bytes`, and holds back bytes that may become such a line.
  /// Returns how many bytes are left.
  std::size_t filter(std::span<char> bytes);
  /// Called at the end of the stream: returns the bytes that were held back. If the program never
  /// began, also returns those that were dropped.
  std::string rest();
  /// The rank's exit status, once the script has reported it.
  const std::optional<int>& status() const { return status_; }

 private:
  std::string token_;  ///< Empty: the stream has no such lines.
  bool begun_ = true;
  std::optional<int> status_;
  std::string held_;     ///< Possible beginning of a line of the script.
  std::string dropped_;  ///< Output before the program began; shown if it never does.
};

}  // namespace mccl::cli::launch
