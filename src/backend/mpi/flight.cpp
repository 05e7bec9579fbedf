#include "backend/mpi/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <optional>

#include "kernels/reduce.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

constexpr std::uint32_t kUpperHalf = std::uint32_t{1} << 31;

}  // namespace

int tag_of(const CallCommunicator& place, const engine::Call& call) {
  const auto half = static_cast<std::uint32_t>(half_of_tags(place.largest_tag));
  const std::uint32_t within = call.tag & ~kUpperHalf;
  if (within >= half - 1) {
    throw InvalidArgument(fmt::format(
        "{}: tag {} exceeds {}, the largest tag that MCCL can use with this MPI library ({})",
        name_of(call.collective), call.tag, half - 2, place.library->identity().version));
  }
  return static_cast<int>(call.tag & kUpperHalf ? half + within : within);
}

void Flight::clear() {
  receives_.clear();
  ignored_.clear();
  requests_.clear();
  ended_ = 0;
  source_ = -1;
  own_memory_ = false;
  result_ = nullptr;
  target_ = nullptr;
  target_bytes_ = 0;
  divides_ = false;
  mismatch_.clear();
  free_long_types();
  large_.clear();
}

std::byte* Flight::memory(std::size_t bytes) {
  if (bytes <= small_.size()) return small_.data();
  large_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return large_.back().get();
}

void Flight::compare(const CallCommunicator& place, std::uint64_t fingerprint) {
  clear();
  place_ = &place;
  own_memory_ = true;
  // The minimum of the complements is the complement of the maximum.
  const std::uint64_t own[] = {fingerprint, ~fingerprint};
  std::memcpy(small_.data(), own, sizeof own);
  const MpiLibrary& mpi = *place.library;
  requests_.push_back(mpi.begin(mpi.Allreduce, false, small_.data(), small_.data() + sizeof own, 2,
                                mpi.type_of(DType::u64), mpi.operation(DType::u64, ReduceKind::min),
                                place.comparisons));
}

bool Flight::agrees() const {
  constexpr std::size_t kBytes = 2 * sizeof(std::uint64_t);
  return std::memcmp(small_.data(), small_.data() + kBytes, kBytes) == 0;
}

/// Begins to receive the messages that have arrived. If a message of a sender has not arrived, its
/// later ones must wait.
void Flight::match_arrived() {
  std::size_t left = 0;
  try {
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      const bool is_behind = left > 0 && receives_[left - 1].peer == receives_[i].peer;
      if (is_behind || !match(receives_[i])) receives_[left++] = receives_[i];
    }
  } catch (...) {
    receives_.clear();
    throw;
  }
  receives_.resize(left);
}

/// Begins to receive the message and returns true if it has arrived. A message that is too long is
/// received into memory of the Flight, so that its sender can go on.
bool Flight::match(const Receive& receive) {
  const std::optional<Arrival> arrival = find(receive);
  if (!arrival) return false;
  source_ = arrival->source;
  if (arrival->bytes != receive.bytes && mismatch_.empty()) {
    mismatch_ = fmt::format(
        "rank {} sent {} bytes, but this rank expected {} {} ({} bytes); both sides must use the "
        "same size",
        source_, arrival->bytes, receive.bytes / size_of(dtype_), name_of(dtype_), receive.bytes);
  }
  std::byte* memory = receive.memory;
  if (arrival->bytes > receive.bytes) {
    try {
      large_.push_back(std::make_unique_for_overwrite<std::byte[]>(arrival->bytes));
    } catch (const std::bad_alloc&) {
      throw MismatchError(mismatch_);
    }
    memory = large_.back().get();
  }
  const auto [count, type] = bytes_of(arrival->bytes);
  requests_.push_back(place_->library->receive(memory, count, type, arrival->message));
  return true;
}

/// Returns a message for this receive that has arrived, if there is one.
std::optional<Arrival> Flight::find(const Receive& receive) const {
  const MpiLibrary& mpi = *place_->library;
  if (ignored_.empty()) return mpi.match(receive.peer, receive.tag, place_->comm);
  for (int rank = 0; rank < place_->size; ++rank) {
    if (std::ranges::find(ignored_, rank) != ignored_.end()) continue;
    if (auto arrival = mpi.match(rank, receive.tag, place_->comm)) return arrival;
  }
  return std::nullopt;
}

/// Returns the count and type of a message of `bytes` bytes. If the count exceeds the range of int,
/// the message is one element of a type that is created for this size.
std::pair<int, Handle> Flight::bytes_of(std::size_t bytes) {
  if (bytes <= std::min<std::size_t>(place_->most, std::numeric_limits<int>::max()))
    return {static_cast<int>(bytes), place_->library->abi().byte};
  return {1, long_types_.emplace_back(place_->library->create_long_type(bytes))};
}

void Flight::free_long_types() {
  for (Handle& type : long_types_) place_->library->Type_free(&type);
  long_types_.clear();
}

void Flight::land() {
  free_long_types();
  if (!mismatch_.empty()) throw MismatchError(mismatch_);
  std::byte* whole = result_ ? result_ : static_cast<std::byte*>(target_);
  if (divides_) {
    kernels::divide(dtype_, whole, target_bytes_ / size_of(dtype_), place_->size);
  }
  if (result_ && target_bytes_ > 0) std::memcpy(target_, result_, target_bytes_);
  large_.clear();
}

}  // namespace mccl::mpi
