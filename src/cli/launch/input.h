// Standard input on its way to several ranks, each at its own pace; held in memory once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

/// What a terminal takes for the end of what is typed.
inline constexpr char kEndOfInput = '\x04';

class Input {
 public:
  /// For readers 0 to `readers` - 1.
  explicit Input(std::size_t readers) : positions_(readers, 0), reading_(readers, true) {}

  void add(std::string_view bytes);
  /// Nothing will be added.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }
  /// What the reader has not had, as far as it lies in one piece; empty when there is none.
  std::string_view pending(std::size_t reader) const;
  void taken(std::size_t reader, std::size_t bytes);
  /// The reader is gone, or wants no more.
  void leave(std::size_t reader);
  bool reading(std::size_t reader) const { return reading_[reader]; }
  /// Whether the reader has had all that there will ever be.
  bool exhausted(std::size_t reader) const;
  /// Whether more is wanted: somebody has had all, and nobody is far behind.
  bool wants_more() const;

 private:
  void drop_what_all_have();

  std::deque<std::string> pieces_;
  std::uint64_t first_ = 0;  ///< Position of the first byte of pieces_.
  std::uint64_t last_ = 0;   ///< Position after the last.
  std::vector<std::uint64_t> positions_;
  std::vector<bool> reading_;
  bool ended_ = false;
};

}  // namespace mccl::cli::launch
