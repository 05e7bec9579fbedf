// Buffers the bytes of a stream and returns them in whole lines.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// Returns the length of the longest prefix of `text` that does not end inside a UTF-8 character.
/// Bytes that are not valid UTF-8 count as characters.
std::size_t whole_characters(std::string_view text);

/// Holds bytes that have been read but not yet taken. Views are valid until the next call of
/// space().
class Lines {
 public:
  /// Maximum length of a line, in bytes. A longer line is taken in pieces of about this length, cut
  /// between characters.
  static constexpr std::size_t kLongest = std::size_t{4} << 20;

  /// Returns free space of at least 64 KiB to read into.
  std::span<char> space();
  /// Adds the first `bytes` bytes of that space to the contents.
  void filled(std::size_t bytes) { end_ += bytes; }
  /// Takes all complete lines with their line ends, or a piece of a line that is too long.
  std::string_view take_lines();
  /// Takes everything up to the last whole character, in order to show a line before it ends.
  std::string_view take_characters();
  /// Takes everything that is left.
  std::string_view take_rest();
  bool empty() const { return begin_ == end_; }

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest() const { return {bytes_.data() + begin_, end_ - begin_}; }

  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  ///< Bytes after begin_ that are known to hold no line end.
};

/// Appends `lines` to `to`, with `prefix` before each line. Adds no line end if the last line has
/// none.
void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines);

}  // namespace mccl::cli::launch
