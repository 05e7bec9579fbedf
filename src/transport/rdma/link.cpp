#include "transport/rdma/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace mccl::transport::rdma {
namespace {

/// After a report that the peer's process has ended, calls fail only after this delay, because the
/// peer's last bytes may arrive after the report.
constexpr std::chrono::milliseconds kLastWords{250};

}  // namespace

RdmaLink::RdmaLink(std::shared_ptr<Station> station, PairAtStation pair, std::string path)
    : station_(std::move(station)), pair_(std::move(pair)), path_(std::move(path)) {}

/// If memory is lent to the device, the pair is destroyed immediately, because the device must not
/// read that memory after this call. The pair is also destroyed immediately if the peer is lost.
/// Otherwise the station destroys the pair once its last messages have been sent.
RdmaLink::~RdmaLink() {
  if (loan_ || lost_at_ != Clock::time_point::max()) {
    pair_.reset();
  } else {
    station_->retire(std::move(pair_));
  }
}

void RdmaLink::fail(const std::string& what) const {
  throw LinkClosed(
      fmt::format("lost the connection to {}: {} ({})", pair_->peer(), what, description()));
}

void RdmaLink::fail_if_over() const {
  if (pair_->corrupted()) {
    throw CorruptionError(fmt::format("{} violates the protocol: {} ({})", pair_->peer(),
                                      pair_->ended(), description()));
  }
  if (!pair_->ended().empty()) fail(pair_->ended());
  if (pair_->closed_by_peer()) fail("it has closed its end");
  if (lost_at_ != Clock::time_point::max() && Clock::now() >= lost_at_)
    fail("its process has ended, or it stopped responding");
}

std::size_t RdmaLink::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  pair_->poll();
  fail_if_over();
  settle_loan();
  // A loan (memory that the device reads in place) begins only if a slot is free. Without a free
  // slot, nothing is written, and the caller may reuse the memory before the next call.
  const bool in_place = !pair_->free_slot().empty() && borrow(second.empty() ? first : second);
  if (in_place && second.empty()) std::swap(first, second);
  std::size_t written = 0;
  while (!first.empty() || !second.empty()) {
    const std::span<std::byte> slot = pair_->free_slot();
    if (slot.empty()) break;
    const std::size_t a = std::min(first.size(), slot.size());
    const std::size_t b = std::min(second.size(), slot.size() - a);
    if (a != 0) std::memcpy(slot.data(), first.data(), a);
    if (in_place && b != 0) {
      pair_->send(a, second.first(b), loan_->key());
      loan_->sent(b);
      moved_.sent_in_place += b;
    } else {
      if (b != 0) std::memcpy(slot.data() + a, second.data(), b);
      pair_->send(a + b);
      moved_.sent_by_copy += b;
    }
    moved_.sent_by_copy += a;
    if (!pair_->ended().empty()) fail(pair_->ended());
    first = first.subspan(a);
    second = second.subspan(b);
    written += a + b;
  }
  return written;
}

/// A link has at most one loan at a time. The caller must copy bytes that do not continue the
/// memory of that loan.
bool RdmaLink::borrow(std::span<const std::byte> bytes) {
  if (loan_ && !loan_->goes_on_with(bytes) && pair_->lent() == 0) loan_.reset();
  if (!loan_) loan_ = station_->device().loans().take(bytes);
  return loan_ && loan_->goes_on_with(bytes);
}

void RdmaLink::settle_loan() const {
  if (loan_ && loan_->rest().empty() && pair_->lent() == 0) loan_.reset();
}

/// Returns at least 1 while memory is lent, so that the caller never reuses memory that is still
/// registered.
std::size_t RdmaLink::borrowed() const {
  if (!loan_) return 0;
  pair_->poll();
  settle_loan();
  return loan_ ? std::max<std::size_t>(pair_->lent(), 1) : 0;
}

std::span<const std::byte> RdmaLink::peek(std::size_t at_least) {
  if (at_least > kPeekBytes) {
    throw InvalidArgument(fmt::format("cannot peek at {} bytes: the buffer holds at most {} ({})",
                                      at_least, kPeekBytes, description()));
  }
  at_least = std::max<std::size_t>(at_least, 1);
  if (here() < at_least) pair_->poll();
  if (here() < at_least) {
    fail_if_over();
    return {};
  }
  if (seam_begin_ == seam_end_ && pair_->front().size() >= at_least) return pair_->front();
  if (seam_end_ - seam_begin_ < at_least) join_ends(at_least);
  return {seam_.data() + seam_begin_, seam_end_ - seam_begin_};
}

/// Extends seam_ to `at_least` bytes and no further, so that peek() later returns the following
/// bytes without a copy.
void RdmaLink::join_ends(std::size_t at_least) {
  std::memmove(seam_.data(), seam_.data() + seam_begin_, seam_end_ - seam_begin_);
  seam_end_ -= std::exchange(seam_begin_, 0);
  while (seam_end_ < at_least) {
    const std::span<const std::byte> next = pair_->front();
    const std::size_t n = std::min(next.size(), at_least - seam_end_);
    std::memcpy(seam_.data() + seam_end_, next.data(), n);
    pair_->take(n);
    seam_end_ += n;
    moved_.joined += n;
  }
}

void RdmaLink::consume(std::size_t n) {
  const std::size_t joined = seam_end_ - seam_begin_;
  const std::size_t there = joined != 0 ? joined : pair_->front().size();
  if (n > there) {
    throw InvalidArgument(fmt::format("cannot consume {} bytes: only {} are available ({})", n,
                                      there, description()));
  }
  if (joined == 0) moved_.taken_in_place += n;
  drop(n);
}

/// Drops the first `n` of the bytes that peek() returned last.
void RdmaLink::drop(std::size_t n) {
  if (seam_begin_ != seam_end_) {
    seam_begin_ += n;
  } else if (n != 0) {
    pair_->take(n);
  }
}

std::size_t RdmaLink::read(std::span<std::byte> destination) {
  if (destination.empty()) return 0;
  if (here() < destination.size()) pair_->poll();
  std::size_t taken = 0;
  while (taken < destination.size() && here() != 0) {
    const std::span<const std::byte> next = peek(1);
    const std::size_t n = std::min(next.size(), destination.size() - taken);
    std::memcpy(destination.data() + taken, next.data(), n);
    drop(n);
    taken += n;
  }
  moved_.read_by_copy += taken;
  if (taken == 0) fail_if_over();
  return taken;
}

std::size_t RdmaLink::unsent() const {
  if (pair_->unsent() != 0) pair_->poll();
  return pair_->ended().empty() && !pair_->closed_by_peer() ? pair_->unsent() : 0;
}

void RdmaLink::lose_peer(Loss loss) {
  if (loss == Loss::left) return;
  const Clock::time_point now = Clock::now();
  lost_at_ = std::min(lost_at_, loss == Loss::silence ? now : now + kLastWords);
}

std::string RdmaLink::description() const {
  const std::uint64_t repeats = pair_->repeats();
  return fmt::format(
      "rdma {}, {}, device {}{}", path_, name_of(pair_->service()), pair_->device().name(),
      repeats == 0 ? "" : fmt::format(", {} messages delivered more than once", repeats));
}

}  // namespace mccl::transport::rdma
