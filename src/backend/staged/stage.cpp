#include "backend/staged/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/keep.h"
#include "device/metal/gpu.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::staged {
namespace {

/// Maximum number of pieces into which Stage::cut() divides the data of a call. Each piece costs
/// the device a few microseconds in addition to the copy.
constexpr std::size_t kMostPieces = 32;

void check_same_device(const Request& request) {
  if (!lies_on_device(request.in) || !lies_on_device(request.out) ||
      request.in.device == request.out.device)
    return;
  throw InvalidArgument(fmt::format(
      "{}: input is on {} and output on {}; both must be on the same device, or one on the host",
      name_of(request.call.collective), device::name_of(request.in.device),
      device::name_of(request.out.device)));
}

void require_there(const device::Accelerator& accelerator, const Request& request,
                   const char* argument, const ConstBuffer& buffer) {
  if (!lies_on_device(buffer)) return;
  const std::string objection = accelerator.objection(buffer);
  if (objection.empty()) return;
  throw InvalidArgument(
      fmt::format("{}: {} {}", name_of(request.call.collective), argument, objection));
}

/// True if this rank contributes data. In a broadcast, only the root contributes data: on the other
/// ranks, `in` is the same memory as `out`.
bool gives(const Request& request, int rank) {
  return request.in.count > 0 &&
         (request.call.collective != Collective::broadcast || request.call.root == rank);
}

/// True if the sum may overwrite the staged copy of its input, which no other code reads.
bool fold_in_place(const Request& request) {
  return (request.call.collective == Collective::all_reduce ||
          request.call.collective == Collective::reduce) &&
         lies_on_device(request.in) && lies_on_device(request.out);
}

}  // namespace

Request as_the_gpu_sees(const Request& request) {
  Request seen = request;
  if (request.in.allocation) {
    seen.in.data = device::metal::address_of(request.in);
    seen.in.device = {DeviceKind::metal, 0};
  }
  if (request.out.allocation) {
    seen.out.data = device::metal::address_of(request.out);
    seen.out.device = {DeviceKind::metal, 0};
  }
  return seen;
}

Stage::Stage(Request& request, int rank, const CallOptions& options, bool early)
    : fence_(options.fence) {
  if (!on_device(request)) return;
  check_same_device(request);
  depot_ = device::depot_of(device_of(request));
  require_there(depot_->accelerator(), request, "input", request.in);
  require_there(depot_->accelerator(), request, "output", request.out);
  if (depot_->accelerator().is_capturing(options.stream)) {
    throw InvalidArgument(
        fmt::format("{}: the stream is being captured, but this call goes through host memory, "
                    "which a graph cannot replay; make the call outside the capture",
                    name_of(request.call.collective)));
  }
  trip_ = stand_in(request, rank);
  trip_.stream = options.stream;
  by_pieces_ = cut(request, early);
  if (by_pieces_) request.conveyor = this;
  bounce_ = depot_->bounce();
  if (fence_) return;
  try {
    begin();
  } catch (...) {
    keep_memory();
    throw;
  }
}

/// If the bounce throws, the device may have begun some of the copies.
void Stage::begin() {
  begun_ = true;
  if (bounce_) bounce_->begin(trip_);
}

/// Returns the result of `poll`. If `poll` throws, records the error and returns true. All later
/// calls of guarded() then return true and do not call `poll`.
template <typename Poll>
bool Stage::guarded(const Poll& poll) {
  if (failure_) return true;
  try {
    return poll();
  } catch (...) {
    failure_ = std::current_exception();
    return true;
  }
}

bool Stage::may_start() {
  return guarded([this] {
    if (fence_) {
      if (!fence_->passed()) return false;
      fence_.reset();
      begin();
    }
    return !bounce_ ||
           arrived() >= (by_pieces_ ? std::min(piece_, trip_.input_bytes) : trip_.input_bytes);
  });
}

std::size_t Stage::arrived() const {
  // Without input there is nothing to wait for.
  return trip_.input_bytes == 0 ? std::numeric_limits<std::size_t>::max() : bounce_->arrived();
}

void Stage::finish(bool failed) {
  finished_ = true;
  if (!bounce_ || !begun_) return;
  guarded([&] {
    bounce_->finish(failed);
    return true;
  });
}

bool Stage::ended() {
  if (!finished_) return false;
  return !bounce_ || !begun_ || guarded([this] { return bounce_->ended(); });
}

Stage::~Stage() {
  if (!bounce_) return;
  if (!begun_ || (ended() && !failure_)) {
    depot_->take_back(std::move(bounce_));
    return;
  }
  keep_memory();
}

/// Called if the device may still access the memory, which is then never freed.
void Stage::keep_memory() {
  keep_for_ever(std::move(bounce_));
  keep_for_ever(std::move(input_));
  keep_for_ever(std::move(output_));
}

/// Cuts long data into pieces, so that copies overlap with the transfer between ranks. If input and
/// output are the same memory at different offsets, the data are copied in one piece, because the
/// order of accesses to pieces would be hard to track.
bool Stage::cut(const Request& request, bool early) {
  const std::size_t longest = std::max(trip_.input_bytes, trip_.output_bytes);
  const std::size_t least = depot_->accelerator().least_piece();
  const std::size_t even = (longest + kMostPieces - 1) / kMostPieces;
  const bool apart = request.in_place && request.in.data != request.out.data;
  const bool in_pieces = early && !apart && longest > least;
  piece_ = in_pieces ? (std::max(even, least) + least - 1) / least * least
                     : std::max<std::size_t>(longest, 1);
  trip_.piece = piece_;
  return in_pieces;
}

device::HostBounce::Trip Stage::stand_in(Request& request, int rank) {
  device::HostBounce::Trip trip{};
  ConstBuffer& in = request.in;
  Buffer& out = request.out;
  const bool takes = lies_on_device(out) && out.count > 0;
  const bool both = lies_on_device(in) && takes && in.count > 0;
  trip.from = in.data;
  trip.from_allocation = in.allocation;
  trip.to = out.data;
  trip.to_allocation = out.allocation;
  trip.input_bytes = lies_on_device(in) && gives(request, rank) ? in.bytes() : 0;
  trip.output_bytes = takes ? out.bytes() : 0;
  if (both && (request.in_place || fold_in_place(request))) {
    // Input and output share one block of host memory. If the call is in place, they keep their
    // relative offsets. Otherwise the sum overwrites its input.
    const auto* const from = static_cast<const std::byte*>(in.data);
    const auto* const to = static_cast<const std::byte*>(out.data);
    const std::byte* const first = request.in_place ? std::min(from, to) : from;
    const std::size_t bytes = std::max(in.bytes(), out.bytes());
    input_ = depot_->block(bytes);
    trip.staged_input = input_.data() + (from - first);
    trip.staged_output = request.in_place ? input_.data() + (to - first) : input_.data();
    request.in_place = true;
  } else {
    if (lies_on_device(in) && in.count > 0) input_ = depot_->block(in.bytes());
    if (takes) output_ = depot_->block(out.bytes());
    trip.staged_input = input_.data();
    trip.staged_output = output_.data();
  }
  if (lies_on_device(in)) in.data = trip.staged_input;
  if (lies_on_device(out)) out.data = const_cast<std::byte*>(trip.staged_output);
  in.device = out.device = Device{};
  in.allocation = out.allocation = nullptr;
  return trip;
}

}  // namespace mccl::staged
