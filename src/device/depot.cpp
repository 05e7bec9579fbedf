#include "device/depot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/machine.h"
#include "base/pinned_memory.h"

namespace mccl::device {
namespace {

constexpr std::size_t kLeastBlock = 4096;

/// Rounds up to a multiple of a step, so that calls of similar sizes can share blocks. The step is
/// an eighth of the largest power of two that is at most `bytes`, and at least kLeastBlock.
std::size_t rounded_up(std::size_t bytes) {
  const std::size_t step = std::max(std::bit_floor(bytes) / 8, kLeastBlock);
  return std::max<std::size_t>(1, (bytes + step - 1) / step) * step;
}

/// A HostBounce that enqueues all copies of a call on one queue, which waits for the host where
/// necessary. Device and host report their progress to each other in words of pinned memory.
class QueueBounce final : public HostBounce {
 public:
  /// `words`: three words of pinned memory on a cache line of their own.
  QueueBounce(std::unique_ptr<Queue> queue, Word* words)
      : queue_(std::move(queue)), words_(words) {}

  /// Enqueues the whole call now, so that no driver call is needed later. A driver call while
  /// the device waits for the host could block on the device.
  void begin(const Trip& trip) override;

  std::size_t arrived() override;
  void release(std::size_t bytes) override;
  /// The output of a failed call is copied too, because its copy is already enqueued.
  void finish(bool /*failed*/) override { release(output_bytes_); }
  bool ended() override { return reached(&words_[kEnded], number_); }
  bool leads() const override { return true; }
  void lead(void* stream) override { queue_->lead(stream); }

 private:
  enum { kArrived, kReleased, kEnded };
  Word word_at(std::size_t bytes, std::size_t whole) const;

  const std::unique_ptr<Queue> queue_;
  Word* const words_;
  /// Value of all three words before the call. During the call, kArrived exceeds this value by the
  /// number of input pieces that have arrived on the host, and kReleased by the number of output
  /// pieces that may be copied.
  Word before_ = 0;
  Word number_ = 0;  ///< Value of the words at the end of the call.
  std::size_t piece_ = 1;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
};

void QueueBounce::begin(const Trip& trip) {
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

/// Returns the value that kArrived has once the first `bytes` of `whole` bytes of input have
/// arrived. kReleased has the same value once the first `bytes` of `whole` bytes of output may be
/// copied.
Word QueueBounce::word_at(std::size_t bytes, std::size_t whole) const {
  return bytes >= whole ? number_ : before_ + static_cast<Word>(bytes / piece_);
}

std::size_t QueueBounce::arrived() {
  const Word word = __atomic_load_n(&words_[kArrived], __ATOMIC_ACQUIRE);
  const auto past = [word](Word value) { return static_cast<std::int32_t>(word - value); };
  if (input_bytes_ == 0 || past(number_) >= 0) return input_bytes_;
  return past(before_) <= 0 ? 0 : static_cast<std::size_t>(past(before_)) * piece_;
}

void QueueBounce::release(std::size_t bytes) {
  const Word word = word_at(bytes, output_bytes_);
  if (!reached(&words_[kReleased], word)) {
    __atomic_store_n(&words_[kReleased], word, __ATOMIC_RELEASE);
  }
}

}  // namespace

Block& Block::operator=(Block&& other) noexcept {
  std::swap(depot_, other.depot_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Block::~Block() {
  if (data_) depot_->take_back(data_, bytes_);
}

Depot::Depot(std::shared_ptr<Accelerator> accelerator) : accelerator_(std::move(accelerator)) {}

Depot::~Depot() {
  bounces_.clear();
  for (const auto& [bytes, block] : unused_) free(block.data, bytes);
  for (std::byte* const page : pages_of_words_) free(page, page_bytes());
}

std::byte* Depot::allocate(std::size_t bytes) {
  std::byte* const data = accelerator_->allocate_pinned(bytes);
  pinned_memory().record(static_cast<std::int64_t>(bytes));
  return data;
}

void Depot::free(std::byte* data, std::size_t bytes) {
  accelerator_->free_pinned(data);
  pinned_memory().record(-static_cast<std::int64_t>(bytes));
}

/// Reuses an unused block if it is at most a quarter larger than needed.
Block Depot::block(std::size_t bytes) {
  const std::size_t size = rounded_up(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto found = unused_.lower_bound(size);
    if (found != unused_.end() && found->first <= size + size / 4) {
      const auto [found_bytes, block] = *found;
      unused_.erase(found);
      unused_bytes_ -= found_bytes;
      return {shared_from_this(), block.data, found_bytes};
    }
  }
  return {shared_from_this(), allocate(size), size};
}

void Depot::take_back(std::byte* data, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    unused_.insert({bytes, {data, Clock::now()}});
    unused_bytes_ += bytes;
    if (unused_bytes_ <= pinned_memory().limit()) return;
  }
  release_unused(Clock::duration::max());
}

std::size_t Depot::unused_bytes() const {
  const std::lock_guard lock(mutex_);
  return unused_bytes_;
}

/// Frees the least recently used blocks first.
void Depot::release_unused(Clock::duration time) {
  std::vector<std::pair<std::byte*, std::size_t>> given_back;
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    while (!unused_.empty() && bounces_in_use_ == 0) {
      const auto oldest = std::ranges::min_element(
          unused_, {}, [](const auto& entry) { return entry.second.since; });
      if (now - oldest->second.since < time && unused_bytes_ <= pinned_memory().limit()) break;
      given_back.emplace_back(oldest->second.data, oldest->first);
      unused_bytes_ -= oldest->first;
      unused_.erase(oldest);
    }
  }
  for (const auto& [data, bytes] : given_back) free(data, bytes);
}

/// Counts the bounce last, because the calls of the accelerator may throw.
std::unique_ptr<HostBounce> Depot::bounce() {
  {
    const std::lock_guard lock(mutex_);
    if (!bounces_.empty()) {
      std::unique_ptr<HostBounce> bounce = std::move(bounces_.back());
      bounces_.pop_back();
      ++bounces_in_use_;
      return bounce;
    }
  }
  std::unique_ptr<HostBounce> bounce = accelerator_->make_bounce();
  std::unique_ptr<Queue> queue = bounce ? nullptr : accelerator_->make_queue();
  const std::lock_guard lock(mutex_);
  if (queue) {
    if (words_left_ == 0) {
      pages_of_words_.push_back(allocate(page_bytes()));
      std::memset(pages_of_words_.back(), 0, page_bytes());
      words_left_ = page_bytes() / line_bytes();
    }
    auto* const words =
        reinterpret_cast<Word*>(pages_of_words_.back() + --words_left_ * line_bytes());
    bounce = std::make_unique<QueueBounce>(std::move(queue), words);
  }
  ++bounces_in_use_;
  return bounce;
}

void Depot::take_back(std::unique_ptr<HostBounce> bounce) {
  const std::lock_guard lock(mutex_);
  bounces_.push_back(std::move(bounce));
  --bounces_in_use_;
}

}  // namespace mccl::device
