// The names that living groups have, and how often each identity was used. The count distinguishes
// a group from earlier ones of the same name, which other ranks may still hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace mccl::engine {

/// The names of living groups, and a bounded number of earlier names. Guarded by its user's lock.
class GroupNames {
 public:
  /// Maximum number of given-up names that are remembered. A forgotten name counts as new when it
  /// is used again. Limitation: a rank that was in many other groups may have forgotten a name that
  /// another rank still remembers. The two then give the next group of that name different numbers,
  /// and do not find each other in it.
  static constexpr std::size_t kMost = std::size_t{1} << 18;

  explicit GroupNames(std::size_t most = kMost) : most_(most) {}

  /// Gives a group the name. Returns how many groups of this identity, a hash of name and members,
  /// have been made, including this one. Returns nothing if a living group has the name.
  std::optional<std::uint32_t> give(const std::string& name, std::uint64_t identity);
  /// Undoes the last give() of the name because the group could not be made.
  void take_back(const std::string& name) noexcept;
  /// Called when the group of that name is destroyed.
  void give_up(const std::string& name);

  std::size_t size() const { return times_.size(); }

 private:
  struct Times {
    std::uint32_t given = 0;
    /// Position in given_up_; end() while a group with this identity lives.
    std::list<std::uint64_t>::iterator given_up;
  };

  void forget_the_oldest();

  const std::size_t most_;
  std::map<std::string, std::uint64_t> living_;  // identities by name
  // Keyed by identity, to store no text of names given up.
  std::unordered_map<std::uint64_t, Times> times_;
  std::list<std::uint64_t> given_up_;  // identities, the oldest first
};

}  // namespace mccl::engine
