// What a host says: the output of its script, cut into named sections.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cluster {

/// No host has more to say about itself than this; one that goes on is cut off.
inline constexpr std::size_t kMostSaid = std::size_t{8} << 20;

/// Takes lines as they come. A section lies between "TOKEN begin NAME" and "TOKEN end NAME"; what
/// comes outside of sections is a start-up file's chatter. Bytes that are no UTF-8 become question
/// marks.
class Said {
 public:
  explicit Said(std::string token) : token_(std::move(token)) {}

  /// Returns the words behind the token when the line is one, else nothing.
  std::string_view hear(std::string_view line);

  const std::string* section(const std::string& name) const;
  /// Begun, and not ended: what the host is busy with, or hangs in.
  const std::string& unfinished() const { return open_; }
  bool too_much() const { return bytes_ > kMostSaid; }

  static Said of(std::map<std::string, std::string> sections);

 private:
  std::string token_;
  std::map<std::string, std::string> sections_;
  std::string open_;
  std::size_t bytes_ = 0;
};

/// Without their ends, also those of other systems; empty ones are left out.
std::vector<std::string_view> lines_of(std::string_view text);
/// Between blanks.
std::vector<std::string_view> words_of(std::string_view line);
std::string_view trimmed(std::string_view text);

}  // namespace mccl::cluster
