// Bytes of a stream, taken out in whole lines.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// The length of the longest beginning of `text` that does not end inside a UTF-8 character. Bytes
/// that are no UTF-8 count as characters of their own.
std::size_t whole_characters(std::string_view text);

/// Holds what has been read and not yet taken. Views are valid until the next call of space().
class Lines {
 public:
  /// A line of more bytes is taken in pieces of about this length, cut between characters.
  static constexpr std::size_t kLongest = std::size_t{4} << 20;

  /// Where to read to: at least 64 KiB.
  std::span<char> space();
  /// Says that so many bytes were put there.
  void filled(std::size_t bytes) { end_ += bytes; }
  /// All lines that are complete, with their ends; or a piece of one that is too long.
  std::string_view take_lines();
  /// What is left, cut between characters: for a line that somebody is to see before it ends.
  std::string_view take_characters();
  /// What is left, to the last byte.
  std::string_view take_rest();
  bool empty() const { return begin_ == end_; }

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest() const { return {bytes_.data() + begin_, end_ - begin_}; }

  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  ///< From begin_: where no line end is.
};

/// Appends `lines` to `to`, each line behind `prefix`. A last line without an end gets none.
void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines);

}  // namespace mccl::cli::launch
