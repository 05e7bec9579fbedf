#include "backend/direct/agreement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "mccl/error.h"

namespace mccl::direct {
namespace {

/// Maximum number of bytes of a warning's text that is_first() uses in a store key. A store accepts
/// keys of up to 1 KiB.
constexpr std::size_t kLongestKey = 900;

}  // namespace

std::string first_objection(Group& group, const std::string& own) {
  struct Said {
    char text[256];
  };
  Said said{};
  own.copy(said.text, sizeof(said.text) - 1);
  const std::vector<Said> all = gather(group, said);
  for (int rank = 0; rank < group.size(); ++rank) {
    const char* const text = all[static_cast<std::size_t>(rank)].text;
    if (*text) return fmt::format("rank {}: {}", rank, text);
  }
  return {};
}

namespace {

/// Returns a number that is unique to this process. It combines the process id with a random
/// number, because processes of different containers may have equal process ids, and a forked child
/// inherits the random number.
std::int64_t own_process() {
  static const std::int64_t by_chance =
      static_cast<std::int64_t>(std::random_device()()) << 32 ^ std::random_device()();
  return by_chance ^ ::getpid();
}

}  // namespace

DeviceIdentity card_of(const std::string& bus) {
  DeviceIdentity card{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  boot.copy(card.boot, sizeof(card.boot) - 1);
  bus.copy(card.bus, sizeof(card.bus) - 1);
  card.process = own_process();
  return card;
}

bool on_one_host(const DeviceIdentity& a, const DeviceIdentity& b) {
  return std::strncmp(a.boot, b.boot, sizeof(a.boot)) == 0;
}

bool is_one_device(const DeviceIdentity& a, const DeviceIdentity& b) {
  return on_one_host(a, b) && std::strncmp(a.bus, b.bus, sizeof(a.bus)) == 0;
}

bool Notices::is_first(const Group& group, const std::string& text) {
  if (group.rank() != 0) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(text).second) return false;
  }
  const std::shared_ptr<Store> store = store_.lock();
  if (!store) return true;
  try {
    return store->add("mccl/notice/" + text.substr(0, kLongestKey), 1) == 1;
  } catch (const Error&) {
    return true;  // Without the store, the text may be logged twice, but it is not lost.
  }
}

void Notices::warn(const Group& group, const std::string& text) {
  if (is_first(group, text)) {
    log_.warn("group '{}': {}", group.name(), text);
  } else {
    log_.info("group '{}': {}", group.name(), text);
  }
}

}  // namespace mccl::direct
