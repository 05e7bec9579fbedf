// Exchanges between the ranks of a group before their devices work together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mccl/group.h"

namespace mccl::direct {

/// Returns the value of every rank, in rank order. All ranks of `group` must call it.
template <typename T>
std::vector<T> gather(Group& group, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group
      .all_gather({&own, sizeof(T), DType::u8}, {all.data(), sizeof(T) * all.size(), DType::u8},
                  {.caller_waits = true})
      .wait();
  return all;
}

/// Returns "rank R: " and the objection of rank R, the lowest rank that has one. Returns an empty
/// string if no rank has one. The result is the same on all ranks.
std::string first_objection(Group& group, const std::string& own);

/// Identifies the device of a rank, so that other ranks can compare it with their own.
struct Card {
  char boot[64];         ///< Boot id of the running kernel, which identifies the host.
  char bus[16];          ///< Bus address of the device.
  std::int64_t process;  ///< Number that is unique to the process.
};

Card card_of(const std::string& bus);
bool on_one_host(const Card& a, const Card& b);
bool is_one_device(const Card& a, const Card& b);

}  // namespace mccl::direct
