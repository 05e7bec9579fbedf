#include "backend/direct/notices.h"

namespace mccl::direct {

void Notices::warn(const Group& group, const std::string& text) {
  bool is_first = false;
  if (group.rank() == 0) {
    const std::lock_guard lock(mutex_);
    is_first = said_.insert(text).second;
  }
  if (is_first) {
    log_.warn("group '{}': {}", group.name(), text);
  } else {
    log_.info("group '{}': {}", group.name(), text);
  }
}

}  // namespace mccl::direct
