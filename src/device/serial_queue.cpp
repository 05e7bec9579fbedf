#include "device/serial_queue.h"

#include <utility>

#include "base/keep.h"

namespace mccl::device {
namespace {

constexpr std::uint64_t kGivenUp = std::uint64_t{1} << 32;

}

SerialQueue::SerialQueue(std::shared_ptr<Depot> depot)
    : depot_(std::move(depot)),
      words_(depot_->block(sizeof(Word))),
      ended_(reinterpret_cast<Word*>(words_.data())),
      queue_(depot_->accelerator().make_queue()) {
  *ended_ = 0;
}

SerialQueue::~SerialQueue() {
  if (!ended(number_)) keep_for_ever(std::move(words_));
}

Word SerialQueue::run_beside(void* stream, const Act& act) {
  const std::lock_guard lock(mutex_);
  if (used_ && !own_queue_is_last_ && last_stream_ != stream) queue_->follow(last_stream_);
  queue_->follow(stream);
  act(queue_->handle());
  queue_->write(ended_, ++number_);
  queue_->mark();
  used_ = own_queue_is_last_ = true;
  return number_;
}

void SerialQueue::run_on(void* stream, bool may_go, const Act& act) {
  const std::lock_guard lock(mutex_);
  // If the previous call used the same stream, the stream already orders the two calls.
  const bool elsewhere = !used_ || own_queue_is_last_ || last_stream_ != stream;
  if (elsewhere && accelerator().is_capturing(stream)) return act(stream);
  if (used_ && elsewhere) {
    if (!own_queue_is_last_) {
      queue_->follow(last_stream_);
      queue_->mark();
    }
    queue_->lead(stream);
  }
  act(stream);
  used_ = true;
  own_queue_is_last_ = may_go;
  last_stream_ = stream;
  if (may_go) {
    queue_->follow(stream);
    queue_->mark();
  }
}

Word SerialQueue::end() {
  const std::lock_guard lock(mutex_);
  if (!used_) return number_;
  if (!own_queue_is_last_) queue_->follow(last_stream_);
  queue_->write(ended_, ++number_);
  queue_->mark();
  own_queue_is_last_ = true;
  return number_;
}

void SerialQueue::give_up() noexcept {
  std::uint64_t not_yet = 0;
  given_up_.compare_exchange_strong(not_yet, kGivenUp | __atomic_load_n(ended_, __ATOMIC_ACQUIRE));
}

bool SerialQueue::has_given_up(Word number) const {
  const std::uint64_t mark = given_up_;
  const auto last = static_cast<Word>(mark);
  return mark != 0 && !reached(&last, number);
}

void SerialQueue::lead(void* stream) {
  const std::lock_guard lock(mutex_);
  if (used_) queue_->lead(stream);
}

}  // namespace mccl::device
