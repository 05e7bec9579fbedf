// Distributes standard input to several ranks, each at its own pace. The bytes are held in memory
// only once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// Character that a terminal interprets as the end of input (Ctrl-D).
inline constexpr char kEndOfInput = '\x04';

class Input {
 public:
  /// The readers are numbered from 0 to `readers` - 1.
  explicit Input(std::size_t readers) : positions_(readers, 0), reading_(readers, true) {}

  void add(std::string_view bytes);
  /// Called when nothing more will be added.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }
  /// Returns bytes that the reader has not taken yet, as far as they are contiguous. Empty if there
  /// are none.
  std::string_view pending(std::size_t reader) const;
  void taken(std::size_t reader, std::size_t bytes);
  /// Called when the reader has ended or wants no more input.
  void leave(std::size_t reader);
  bool reading(std::size_t reader) const { return reading_[reader]; }
  /// True if the input has ended and the reader has taken all of it.
  bool exhausted(std::size_t reader) const;
  /// True if some reader has taken all bytes and no reader lags far behind.
  bool wants_more() const;

 private:
  void drop_what_all_have();

  std::deque<std::string> pieces_;
  std::uint64_t first_ = 0;  ///< Position of the first byte of pieces_.
  std::uint64_t last_ = 0;   ///< Position after the last byte.
  std::vector<std::uint64_t> positions_;
  std::vector<bool> reading_;
  bool ended_ = false;
};

}  // namespace mccl::cli::launch
