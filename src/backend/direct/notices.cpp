#include "backend/direct/notices.h"

#include "mccl/error.h"

namespace mccl::direct {
namespace {

/// Maximum bytes of a text in its key. A store accepts keys of up to 1 KiB.
constexpr std::size_t kLongestKey = 900;

}  // namespace

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
    return true;  // Logging a text twice is better than not logging it.
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
