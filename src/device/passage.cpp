#include "device/passage.h"

#include <algorithm>

namespace mccl::device {

void QueuePassage::begin(const Trip& trip) {
  input_bytes_ = trip.input_bytes;
  output_bytes_ = trip.output_bytes;
  const std::size_t longest = std::max<std::size_t>({input_bytes_, output_bytes_, 1});
  piece_ = trip.piece == 0 ? longest : trip.piece;
  before_ = number_;
  number_ += static_cast<Word>((longest + piece_ - 1) / piece_);
  queue_->follow(trip.stream);
  for (std::size_t at = 0; at < input_bytes_; at += piece_) {
    const std::size_t bytes = std::min(piece_, input_bytes_ - at);
    queue_->copy_to_host(trip.staged_input + at, static_cast<const std::byte*>(trip.from) + at,
                         bytes);
    queue_->write(&words_[kArrived], word_at(at + bytes, input_bytes_));
  }
  for (std::size_t at = 0; at < output_bytes_; at += piece_) {
    const std::size_t bytes = std::min(piece_, output_bytes_ - at);
    queue_->await(&words_[kReleased], word_at(at + bytes, output_bytes_));
    queue_->copy_to_device(static_cast<std::byte*>(trip.to) + at, trip.staged_output + at, bytes);
  }
  queue_->write(&words_[kEnded], number_);
  queue_->mark();
}

/// Value of a word once the first `bytes` of `whole` have been copied.
Word QueuePassage::word_at(std::size_t bytes, std::size_t whole) const {
  return bytes >= whole ? number_ : before_ + static_cast<Word>(bytes / piece_);
}

std::size_t QueuePassage::arrived() {
  const Word word = __atomic_load_n(&words_[kArrived], __ATOMIC_ACQUIRE);
  const auto past = [word](Word value) { return static_cast<std::int32_t>(word - value); };
  if (input_bytes_ == 0 || past(number_) >= 0) return input_bytes_;
  return past(before_) <= 0 ? 0 : static_cast<std::size_t>(past(before_)) * piece_;
}

void QueuePassage::release(std::size_t bytes) {
  const Word word = word_at(bytes, output_bytes_);
  if (!reached(&words_[kReleased], word)) {
    __atomic_store_n(&words_[kReleased], word, __ATOMIC_RELEASE);
  }
}

}  // namespace mccl::device
