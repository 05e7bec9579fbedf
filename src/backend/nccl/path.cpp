#include "backend/nccl/path.h"

#include <fmt/format.h>

#include <atomic>
#include <climits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/direct/agreement.h"
#include "backend/nccl/library.h"
#include "base/clock.h"
#include "base/keep.h"
#include "base/thread.h"
#include "device/cuda/gpu.h"
#include "device/registry.h"
#include "engine/calls/operation.h"
#include "mccl/error.h"

namespace mccl::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr unsigned kConfigVersion = 21800;

/// Representation of elements that are moved without arithmetic: one element is sent as
/// `per_element` elements of NCCL's `type`. Types that NCCL lacks are sent as bytes.
struct ElementForm {
  int type;
  std::size_t per_element;
};
ElementForm moved(DType dtype) {
  const int type = type_of(dtype);
  return type >= 0 ? ElementForm{type, 1} : ElementForm{type_of(DType::u8), size_of(dtype)};
}

/// Returns the configuration of a non-blocking communicator. All other values are NCCL's defaults.
CommConfig non_blocking() {
  return {
      sizeof(CommConfig), kMagic, kConfigVersion, 0, INT_MIN, INT_MIN, INT_MIN, nullptr, INT_MIN};
}

class NcclPath final : public direct::DevicePath {
 public:
  NcclPath(const direct::PathOptions& options, bool encrypts)
      : DevicePath(options), nccl_(library()), encrypts_(encrypts) {}
  ~NcclPath() override {
    abort();
    if (ending_.joinable()) ending_.join();
  }

  std::shared_ptr<direct::Path> split(Group* child, int color, int key) override;
  std::string name() const override { return "nccl"; }
  std::string_view algorithm() const override { return "nccl"; }
  std::string failure() override;
  void end_calls() noexcept override;

 private:
  bool supports(const Request& request) const override;
  void meet() override;
  void start(const Request& request, void* stream) override;
  /// Completes a path that split() has created, after NCCL has set its `comm_`.
  void begin_as_part(Device device);
  void settle(Result result, const char* call);
  std::string why_failed();
  void begin(const Request& request, void* stream);
  void exchange(const Request& request, void* stream);
  const std::byte* part_in(const Request& r, std::size_t before) const {
    return static_cast<const std::byte*>(r.in.data) + before * size_of(r.call.dtype);
  }
  std::byte* part_out(const Request& r, std::size_t before) const {
    return static_cast<std::byte*>(r.out.data) + before * size_of(r.call.dtype);
  }

  const NcclLibrary& nccl_;
  const bool encrypts_;  ///< True if connections between ranks are encrypted.
  /// Serialises NCCL's calls on the communicator, which must not run concurrently.
  std::mutex mutex_;
  Comm comm_ = nullptr;  // guarded by mutex_
  std::string failure_;  // guarded by mutex_
  std::thread ending_;   // guarded by mutex_; destroys the communicator, which may block
};

bool NcclPath::supports(const Request& request) const {
  if (!is_collective(request.call) || !only_on_device(request)) return false;
  return !engine::reduces(request.call) ||
         (type_of(request.call.dtype) >= 0 && op_of(request.call.dtype, request.call.kind) >= 0);
}

/// Rank 0 creates the id with which NCCL's ranks find each other, and the group broadcasts the id.
void NcclPath::meet() {
  const NcclOffer own{direct::card_of(device::depot_of(device_)->accelerator().bus()),
                      nccl_.version};
  const std::vector<NcclOffer> offers = direct::gather(group(), own);
  if (const std::string reason = objection_to(offers, encrypts_); !reason.empty()) {
    options_.notices->warn(group(), fmt::format("collectives on GPUs do not use NCCL: {}", reason));
    return;
  }
  UniqueId id{};
  if (group().rank() == 0) {
    const Result result = nccl_.GetUniqueId(&id);
    const std::lock_guard lock(mutex_);
    settle(result, "ncclGetUniqueId");
  }
  group().broadcast({id.bytes, sizeof(id.bytes), DType::u8}, 0).wait();
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device_.index));
  CommConfig config = non_blocking();
  {
    const std::lock_guard lock(mutex_);
    settle(nccl_.CommInitRankConfig(&comm_, group().size(), id, group().rank(), &config),
           "ncclCommInitRankConfig");
  }
  make_queue();
  options_.log.info("group '{}': collectives on {} use {}", group().name(),
                    own_queue_->accelerator().name(), nccl_.described());
}

/// Splits the existing communicator, whose ranks are already connected. NCCL returns success at
/// once and creates the child's communicator on its own thread. Until then the parent's
/// communicator refuses other calls, so this function polls the parent's communicator until it
/// accepts calls again. NCCL writes the child's communicator to `comm_` of the child's path. If
/// this rank is in no child group, NCCL writes to a static variable.
std::shared_ptr<direct::Path> NcclPath::split(Group* child, int color, int key) {
  const std::lock_guard lock(mutex_);
  if (!comm_) return {};
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device_.index));
  CommConfig config = non_blocking();
  static Comm nobody = nullptr;
  std::shared_ptr<NcclPath> path;
  if (child) {
    path = std::make_shared<NcclPath>(
        direct::PathOptions{*child, options_.timeout, options_.log, options_.notices}, encrypts_);
  }
  try {
    const Result begun = nccl_.CommSplit(comm_, child ? color : kNoColor, key,
                                         path ? &path->comm_ : &nobody, &config);
    settle(begun == kSuccess ? kInProgress : begun, "ncclCommSplit");
    if (path) path->begin_as_part(device_);
  } catch (const Error&) {
    // Never destroy the child's path, because NCCL may still write to its `comm_`.
    keep_for_ever(path);
    throw;
  }
  return path;
}

void NcclPath::begin_as_part(Device device) {
  const std::lock_guard lock(mutex_);
  if (!std::atomic_ref(comm_).load())
    throw PeerError(fmt::format("ncclCommSplit on rank {} of group '{}' made no communicator",
                                group().rank(), group().name()));
  has_met_ = true;
  device_ = device;
  settle(kInProgress, "ncclCommSplit");
  make_queue();
  options_.log.info(
      "group '{}': collectives on {} use {}, with a communicator split from that of the parent "
      "group",
      group().name(), own_queue_->accelerator().name(), nccl_.described());
}

/// Waits until NCCL has completed the asynchronous `call`, which returned `result`. Throws if the
/// call fails or exceeds the group's timeout, or if the path is aborted. The caller must hold
/// `mutex_`.
void NcclPath::settle(Result result, const char* call) {
  const Clock::time_point deadline = engine::deadline_after(Clock::now(), options_.timeout);
  while (result == kInProgress && Clock::now() < deadline && !was_aborted()) {
    std::this_thread::yield();
    if (const Result asked = nccl_.CommGetAsyncError(comm_, &result); asked != kSuccess) {
      result = asked;
    }
  }
  if (result == kSuccess) return;
  const char* const more = nccl_.GetLastError ? nccl_.GetLastError(comm_) : nullptr;
  failure_ =
      fmt::format("{} on rank {} of group '{}': {}{}{}", call, group().rank(), group().name(),
                  was_aborted()           ? group().failure()
                  : result == kInProgress ? "timed out; a rank has not made the call"
                                          : nccl_.GetErrorString(result),
                  more && *more ? ": " : "", more ? more : "");
  if (result == kInProgress && !was_aborted()) throw TimeoutError(failure_);
  throw PeerError(failure_);
}

void NcclPath::start(const Request& request, void* stream) {
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device_.index));
  const std::lock_guard lock(mutex_);
  if (const std::string reason = why_failed(); !reason.empty()) refuse(request, reason);
  begin(request, stream);
}

void NcclPath::begin(const Request& r, void* stream) {
  const int type = type_of(r.call.dtype);
  const int op = op_of(r.call.dtype, r.call.kind);
  const ElementForm move = moved(r.call.dtype);
  switch (r.call.collective) {
    case Collective::all_reduce:
      return settle(nccl_.AllReduce(r.in.data, r.out.data, r.call.count, type, op, comm_, stream),
                    "ncclAllReduce");
    case Collective::reduce:
      return settle(
          nccl_.Reduce(r.in.data, r.out.data, r.call.count, type, op, r.call.root, comm_, stream),
          "ncclReduce");
    case Collective::broadcast:
      return settle(nccl_.Broadcast(r.in.data, r.out.data, r.call.count * move.per_element,
                                    move.type, r.call.root, comm_, stream),
                    "ncclBroadcast");
    case Collective::all_gather:
      if (!r.counts.empty()) break;
      return settle(nccl_.AllGather(r.in.data, r.out.data, r.in.count * move.per_element, move.type,
                                    comm_, stream),
                    "ncclAllGather");
    case Collective::reduce_scatter:
      if (!r.counts.empty()) break;
      return settle(
          nccl_.ReduceScatter(r.in.data, r.out.data, r.out.count, type, op, comm_, stream),
          "ncclReduceScatter");
    default:
      break;
  }
  settle(nccl_.GroupStart(), "ncclGroupStart");
  exchange(r, stream);
  settle(nccl_.GroupEnd(), "ncclGroupEnd");
}

/// Carries out a collective that NCCL lacks. Makes several NCCL calls instead: sends and receives,
/// or one reduction per rank. The caller must put them in one NCCL group, so that they start
/// together.
void NcclPath::exchange(const Request& r, void* stream) {
  const ElementForm move = moved(r.call.dtype);
  const Shares given = shares_of(r, group().size());
  const Shares taken = r.recv_counts.empty() ? given : Shares::of(r.recv_counts);
  const int own = group().rank();
  const bool root = own == r.call.root;
  for (int peer = 0; peer < group().size(); ++peer) {
    const auto send = [&](const void* from, std::size_t count) {
      if (count > 0) nccl_.Send(from, count * move.per_element, move.type, peer, comm_, stream);
    };
    const auto receive = [&](void* to, std::size_t count) {
      if (count > 0) nccl_.Recv(to, count * move.per_element, move.type, peer, comm_, stream);
    };
    switch (r.call.collective) {
      case Collective::all_to_all:
        send(part_in(r, given.before(peer)), given.at(peer));
        receive(part_out(r, taken.before(peer)), taken.at(peer));
        break;
      case Collective::all_gather:
        send(r.in.data, given.at(own));
        receive(part_out(r, given.before(peer)), given.at(peer));
        break;
      case Collective::gather:
        if (peer == r.call.root) send(r.in.data, given.at(own));
        if (root) receive(part_out(r, given.before(peer)), given.at(peer));
        break;
      case Collective::scatter:
        if (root) send(part_in(r, given.before(peer)), given.at(peer));
        if (peer == r.call.root) receive(r.out.data, given.at(own));
        break;
      case Collective::reduce_scatter:
        nccl_.Reduce(part_in(r, given.before(peer)), peer == own ? r.out.data : nullptr,
                     given.at(peer), type_of(r.call.dtype), op_of(r.call.dtype, r.call.kind), peer,
                     comm_, stream);
        break;
      default:
        break;
    }
  }
}

std::string NcclPath::failure() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return {};  // the thread that holds `mutex_` checks for failures itself
  return why_failed();
}

/// The caller must hold `mutex_`. Prefers the group's failure to an error of NCCL, because only the
/// former names the lost rank.
std::string NcclPath::why_failed() {
  if (std::string reason = group().failure(); !reason.empty()) return reason;
  Result state = kSuccess;
  if (failure_.empty() && comm_ && nccl_.CommGetAsyncError(comm_, &state) == kSuccess &&
      state != kSuccess && state != kInProgress) {
    failure_ = fmt::format("NCCL reports an error on rank {}: {}; NCCL_DEBUG=INFO shows its cause",
                           group().rank(), nccl_.GetErrorString(state));
  }
  return failure_;
}

/// Destroys the communicator on another thread. NCCL first ends the communicator's threads and
/// kernels. The caller must not wait for that, because it may be the engine's thread. A thread that
/// polls NCCL in settle() sees was_aborted() and releases the lock.
void NcclPath::end_calls() noexcept {
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  if (failure_.empty()) failure_ = "the group has been aborted";
  const auto end = [&nccl = nccl_, comm = std::exchange(comm_, nullptr)] { nccl.CommAbort(comm); };
  try {
    ending_ = start_thread("mccl-nccl-end", end);
  } catch (const std::exception&) {
    end();  // no thread could be started
  }
}

}  // namespace

std::string objection_to(std::span<const NcclOffer> offers, bool encrypts) {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    const NcclOffer& offer = offers[rank];
    if (offer.version != offers.front().version) {
      return fmt::format("rank {} has NCCL {}, but rank 0 has {}", rank, offer.version,
                         offers.front().version);
    }
    if (encrypts && !direct::on_one_host(offer.card, offers.front().card)) {
      return fmt::format(
          "MCCL_ENCRYPTION is on, and NCCL does not encrypt what it sends between the hosts of "
          "ranks 0 and {}; set MCCL_ENCRYPTION=off if the network is trusted",
          rank);
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (!direct::is_one_device(offer.card, offers[other].card)) continue;
      return fmt::format("ranks {} and {} use the same GPU, {}", other, rank, offer.card.bus);
    }
  }
  return {};
}

std::shared_ptr<direct::Path> make_path(const direct::PathOptions& options, bool encrypts) {
  device::cuda::driver();
  return std::make_shared<NcclPath>(options, encrypts);
}

}  // namespace mccl::nccl
