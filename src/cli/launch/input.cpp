#include "cli/launch/input.h"

#include <algorithm>
#include <limits>

namespace mccl::cli::launch {
namespace {

/// Maximum number of bytes by which a rank may lag behind. A rank that does not read should not
/// soon hold up the others, but must not fill the memory either.
constexpr std::uint64_t kMostBehind = std::uint64_t{64} << 20;

}  // namespace

void Input::add(std::string_view bytes) {
  if (bytes.empty()) return;
  pieces_.emplace_back(bytes);
  last_ += bytes.size();
  drop_what_all_have();
}

std::string_view Input::pending(std::size_t reader) const {
  if (!reading_[reader]) return {};
  std::uint64_t begin = first_;
  for (const std::string& piece : pieces_) {
    if (positions_[reader] < begin + piece.size())
      return std::string_view(piece).substr(positions_[reader] - begin);
    begin += piece.size();
  }
  return {};
}

void Input::taken(std::size_t reader, std::size_t bytes) {
  positions_[reader] += bytes;
  drop_what_all_have();
}

void Input::leave(std::size_t reader) {
  reading_[reader] = false;
  drop_what_all_have();
}

bool Input::exhausted(std::size_t reader) const { return ended_ && positions_[reader] == last_; }

bool Input::wants_more() const {
  if (ended_) return false;
  bool somebody_waits = false;
  for (std::size_t reader = 0; reader < positions_.size(); ++reader) {
    if (!reading_[reader]) continue;
    if (last_ - positions_[reader] >= kMostBehind) return false;
    somebody_waits = somebody_waits || positions_[reader] == last_;
  }
  return somebody_waits;
}

void Input::drop_what_all_have() {
  std::uint64_t slowest = last_;
  for (std::size_t reader = 0; reader < positions_.size(); ++reader)
    if (reading_[reader]) slowest = std::min(slowest, positions_[reader]);
  while (!pieces_.empty() && first_ + pieces_.front().size() <= slowest) {
    first_ += pieces_.front().size();
    pieces_.pop_front();
  }
}

}  // namespace mccl::cli::launch
