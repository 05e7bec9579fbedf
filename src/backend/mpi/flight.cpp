#include "backend/mpi/flight.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

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
  requests_.clear();
  ended_ = 0;
  arrival_ = {};
  wants_arrival_ = false;
  own_memory_ = false;
  result_ = nullptr;
  target_ = nullptr;
  target_bytes_ = 0;
  divides_ = false;
  has_long_type_ = false;
  large_.reset();
}

std::byte* Flight::memory(std::size_t bytes) {
  if (bytes <= small_.size()) return small_.data();
  large_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return large_.get();
}

void Flight::land() {
  if (has_long_type_) {
    place_->library->Type_free(&long_type_);
    has_long_type_ = false;
  }
  if (wants_arrival_) {
    if (!arrival_.cancelled && arrival_.bytes != static_cast<std::int64_t>(target_bytes_)) {
      throw MismatchError(
          fmt::format("rank {} sent {} bytes, but this rank expected {} {} ({} bytes); both sides "
                      "must use the same size",
                      arrival_.source, arrival_.bytes, target_bytes_ / size_of(dtype_),
                      name_of(dtype_), target_bytes_));
    }
  }
  std::byte* whole = result_ ? result_ : static_cast<std::byte*>(target_);
  if (divides_) {
    kernels::divide(dtype_, whole, target_bytes_ / size_of(dtype_), place_->size);
  }
  if (result_ && target_bytes_ > 0 && !arrival_.cancelled) {
    std::memcpy(target_, result_, target_bytes_);
  }
  large_.reset();
}

void Flight::cancel() {
  if (!wants_arrival_) return;
  for (std::size_t i = ended_; i < requests_.size(); ++i) place_->library->Cancel(&requests_[i]);
}

}  // namespace mccl::mpi
