// Which names groups have, and how often each was given: what tells a group apart from those of its
// name that came before, which others may still have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace mccl::engine {

/// Remembers a bounded number of names beside those of living groups. Guarded by who uses it.
class GroupNames {
 public:
  /// A name that is used again after so many others were given up counts as new. A rank that was in
  /// those others has then forgotten a group that another rank, which was not, may remember: the
  /// two give the next group of that name different numbers and do not find each other in it.
  static constexpr std::size_t kMost = std::size_t{1} << 18;

  explicit GroupNames(std::size_t most = kMost) : most_(most) {}

  /// Gives a group the name: how many of this identity, a hash of name and members, there have been
  /// with it. Nothing when a living group has the name.
  std::optional<std::uint32_t> give(const std::string& name, std::uint64_t identity);
  /// Undoes the last give() of the name: the group was not made.
  void take_back(const std::string& name) noexcept;
  /// The group of that name lives no more.
  void give_up(const std::string& name);

  std::size_t size() const { return times_.size(); }

 private:
  struct Times {
    std::uint32_t given = 0;
    /// Its place among those given up; the end while a group lives.
    std::list<std::uint64_t>::iterator given_up;
  };

  void forget_the_oldest();

  const std::size_t most_;
  std::map<std::string, std::uint64_t> living_;     // identities by name
  std::unordered_map<std::uint64_t, Times> times_;  // by identity: no text for names that were
  std::list<std::uint64_t> given_up_;               // identities, the oldest first
};

}  // namespace mccl::engine
