// What the ranks of a group tell each other before their devices work together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mccl/group.h"

namespace mccl::direct {

/// Of every rank, by a call of `group` on host memory.
template <typename T>
std::vector<T> gather(Group& group, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group
      .all_gather({&own, sizeof(T), DType::u8}, {all.data(), sizeof(T) * all.size(), DType::u8},
                  {.caller_waits = true})
      .wait();
  return all;
}

/// The first objection that any rank has, with the rank; empty where none has. The same on all
/// ranks.
std::string first_objection(Group& group, const std::string& own);

/// The device of a rank, by which others tell whether it is theirs.
struct Card {
  char boot[64];         ///< Of the kernel that runs: the host.
  char bus[16];          ///< Where the device is plugged in.
  std::int64_t process;  ///< No other process has it.
};

Card card_of(const std::string& bus);
bool on_one_host(const Card& a, const Card& b);
bool is_one_device(const Card& a, const Card& b);

}  // namespace mccl::direct
