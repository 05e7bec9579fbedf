#include "transport/tcp/outbox.h"

#include <algorithm>

#include "base/would_block.h"
#include "transport/tcp/secure_stream.h"

namespace mccl::transport::tcp {

void Outbox::join() {
  waiting_.reserve(members_ + 1);
  ++members_;
}

void Outbox::leave(const SecureStream& stream) noexcept {
  std::erase(waiting_, &stream);
  --members_;
}

void Outbox::wait(SecureStream& stream) noexcept {
  if (std::ranges::find(waiting_, &stream) != waiting_.end()) return;
  waiting_.push_back(&stream);
  has_unwatched_ = true;
}

void Outbox::watch(std::vector<pollfd>& descriptors) {
  has_unwatched_ = false;
  for (const SecureStream* each : waiting_) descriptors.push_back({each->descriptor(), POLLOUT, 0});
}

void Outbox::flush() noexcept {
  std::erase_if(waiting_, [](SecureStream* each) {
    const int error = each->flush();
    nap_if_memory_is_short(error);
    return !would_block(error);
  });
  if (waiting_.empty()) has_unwatched_ = false;
}

}  // namespace mccl::transport::tcp
