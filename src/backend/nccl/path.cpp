#include "backend/nccl/path.h"

#include <fmt/format.h>

#include <atomic>
#include <climits>
#include <functional>
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
#include "mccl/error.h"

namespace mccl::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr unsigned kConfigVersion = 21800;

Device device_of(const Request& request) {
  return request.in.device.kind == DeviceKind::cuda ? request.in.device : request.out.device;
}

/// How elements that are only moved are sent: each one as `per_element` elements of NCCL's `type`.
/// If NCCL lacks the type, they are sent as bytes.
struct Moved {
  int type;
  std::size_t per_element;
};
Moved moved(DType dtype) {
  const int type = type_of(dtype);
  return type >= 0 ? Moved{type, 1} : Moved{type_of(DType::u8), size_of(dtype)};
}

/// Returns the configuration of a non-blocking communicator. All other values are NCCL's defaults.
CommConfig non_blocking() {
  return {
      sizeof(CommConfig), kMagic, kConfigVersion, 0, INT_MIN, INT_MIN, INT_MIN, nullptr, INT_MIN};
}

class NcclPath final : public direct::Path {
 public:
  NcclPath(Group& group, std::chrono::milliseconds timeout, Log log,
           std::shared_ptr<direct::Notices> notices, bool encrypts)
      : nccl_(library()),
        group_(group),
        timeout_(timeout),
        log_(std::move(log)),
        notices_(std::move(notices)),
        encrypts_(encrypts) {}
  ~NcclPath() override {
    abort();
    if (ending_.joinable()) ending_.join();
  }

  bool takes(const Request& request) override;
  bool has_to_meet() const override { return !met_; }
  void enqueue(const Request& request, void* stream) override;
  std::shared_ptr<direct::Path> split(Group* child, int color, int key) override;
  std::string name() const override { return "nccl"; }
  std::string failure() override;
  void end_calls() noexcept override;

 private:
  /// Starts a path made by split(), after NCCL has filled in `comm_`.
  void begin_as_part(Device device);
  void meet(Device device);
  std::string objection(const device::Accelerator& accelerator);
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

  const Library& nccl_;
  Group& group_;
  const std::chrono::milliseconds timeout_;
  const Log log_;
  const std::shared_ptr<direct::Notices> notices_;
  const bool encrypts_;  ///< True if connections between ranks are encrypted.
  /// Serialises NCCL's calls on the communicator, which must not run concurrently.
  std::mutex mutex_;
  Comm comm_ = nullptr;  // guarded by mutex_
  std::string failure_;  // guarded by mutex_
  std::thread ending_;   // guarded by mutex_; destroys the communicator, which may take long
  bool met_ = false;
  std::unique_ptr<device::Lane> own_lane_;  ///< Made when the ranks meet; null if they cannot.
  Device device_;
};

bool NcclPath::takes(const Request& request) {
  const bool here = request.in.device.kind != DeviceKind::cpu || request.in.count == 0;
  const bool there = request.out.device.kind != DeviceKind::cpu || request.out.count == 0;
  if (!is_collective(request.call) || !here || !there) return false;
  if (engine::reduces(request.call) &&
      (type_of(request.call.dtype) < 0 || op_of(request.call.dtype, request.call.kind) < 0)) {
    return false;
  }
  if (!met_) meet(device_of(request));
  return lane() != nullptr;
}

/// Returns the reason if the ranks cannot use NCCL; otherwise empty. The same on all ranks.
std::string NcclPath::objection(const device::Accelerator& accelerator) {
  struct Offer {
    direct::Card card;
    int version;
  };
  const Offer own{direct::card_of(accelerator.bus()), nccl_.version};
  const std::vector<Offer> offers = direct::gather(group_, own);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Offer& offer = offers[static_cast<std::size_t>(rank)];
    if (offer.version != offers.front().version) {
      return fmt::format("rank {} has NCCL {}, but rank 0 has {}", rank, offer.version,
                         offers.front().version);
    }
    if (encrypts_ && !direct::on_one_host(offer.card, offers.front().card)) {
      return fmt::format(
          "MCCL_ENCRYPTION is on, and NCCL does not encrypt what it sends between the hosts of "
          "ranks 0 and {}; set MCCL_ENCRYPTION=off if the network is trusted",
          rank);
    }
    for (int other = 0; other < rank; ++other) {
      const Offer& theirs = offers[static_cast<std::size_t>(other)];
      if (!direct::is_one_device(offer.card, theirs.card)) continue;
      return fmt::format("ranks {} and {} use the same GPU, {}", other, rank, offer.card.bus);
    }
  }
  return {};
}

/// Rank 0 makes the id through which NCCL's ranks find each other, and the group broadcasts it.
void NcclPath::meet(Device device) {
  met_ = true;
  const auto depot = device::depot_of(device);
  if (const std::string reason = objection(depot->accelerator()); !reason.empty()) {
    notices_->warn(group_, fmt::format("collectives on GPUs do not use NCCL: {}", reason));
    return;
  }
  UniqueId id{};
  if (group_.rank() == 0) settle(nccl_.GetUniqueId(&id), "ncclGetUniqueId");
  group_.broadcast({id.bytes, sizeof(id.bytes), DType::u8}, 0).wait();
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device.index));
  CommConfig config = non_blocking();
  {
    const std::lock_guard lock(mutex_);
    settle(nccl_.CommInitRankConfig(&comm_, group_.size(), id, group_.rank(), &config),
           "ncclCommInitRankConfig");
  }
  own_lane_ = std::make_unique<device::Lane>(depot);
  order_by(*own_lane_);
  device_ = device;
  log_.info("group '{}': collectives on {} use {}", group_.name(), own_lane_->accelerator().name(),
            nccl_.described());
}

/// Splits the existing communicator, whose ranks know each other already. NCCL returns success at
/// once and fills in the part's communicator on a thread of its own. Until then the parent is busy
/// and refuses other calls, so this function polls it until it is ready. The part's communicator is
/// written to the part's own member, or to a static variable if this rank is in no part.
std::shared_ptr<direct::Path> NcclPath::split(Group* child, int color, int key) {
  const std::lock_guard lock(mutex_);
  if (!comm_) return {};
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device_.index));
  CommConfig config = non_blocking();
  static Comm nobody = nullptr;
  const auto path =
      child ? std::make_shared<NcclPath>(*child, timeout_, log_, notices_, encrypts_) : nullptr;
  try {
    const Result begun = nccl_.CommSplit(comm_, child ? color : kNoColor, key,
                                         path ? &path->comm_ : &nobody, &config);
    settle(begun == kSuccess ? kInProgress : begun, "ncclCommSplit");
    if (path) path->begin_as_part(device_);
  } catch (const Error&) {
    // NCCL may still write to the `comm_` of the child group's path.
    keep_for_ever(path);
    throw;
  }
  return path;
}

void NcclPath::begin_as_part(Device device) {
  const std::lock_guard lock(mutex_);
  if (!std::atomic_ref(comm_).load())
    throw PeerError(fmt::format("ncclCommSplit on rank {} of group '{}' made no communicator",
                                group_.rank(), group_.name()));
  met_ = true;
  settle(kInProgress, "ncclCommSplit");
  own_lane_ = std::make_unique<device::Lane>(device::depot_of(device));
  order_by(*own_lane_);
  device_ = device;
  log_.info("group '{}': collectives on {} use {}, with a communicator split from the parent's",
            group_.name(), own_lane_->accelerator().name(), nccl_.described());
}

/// Waits until NCCL has completed an asynchronous call. Throws NCCL's error.
void NcclPath::settle(Result result, const char* call) {
  const Clock::time_point deadline =
      timeout_.count() > 0 ? Clock::now() + timeout_ : Clock::time_point::max();
  while (result == kInProgress && Clock::now() < deadline && !was_aborted()) {
    std::this_thread::yield();
    if (const Result asked = nccl_.CommGetAsyncError(comm_, &result); asked != kSuccess) {
      result = asked;
    }
  }
  if (result == kSuccess) return;
  const char* const more = nccl_.GetLastError ? nccl_.GetLastError(comm_) : nullptr;
  failure_ = fmt::format("{} on rank {} of group '{}': {}{}{}", call, group_.rank(), group_.name(),
                         was_aborted()           ? group_.failure()
                         : result == kInProgress ? "timed out; a rank has not made the call"
                                                 : nccl_.GetErrorString(result),
                         more && *more ? ": " : "", more ? more : "");
  if (result == kInProgress && !was_aborted()) throw TimeoutError(failure_);
  throw PeerError(failure_);
}

void NcclPath::enqueue(const Request& request, void* stream) {
  if (device_of(request) != device_) {
    throw InvalidArgument(fmt::format(
        "{}: rank {} created group '{}' on {} but calls it on {}; use one GPU per NCCL group",
        name_of(request.call.collective), group_.rank(), group_.name(), device::name_of(device_),
        device::name_of(device_of(request))));
  }
  const device::cuda::Current current(device::cuda::driver(),
                                      device::cuda::context_of(device_.index));
  const std::lock_guard lock(mutex_);
  if (const std::string reason = why_failed(); !reason.empty()) {
    throw PeerError(fmt::format("{} on rank {} ({}) cannot start: {}",
                                name_of(request.call.collective), group_.rank(),
                                device::name_of(device_), reason));
  }
  begin(request, stream);
}

void NcclPath::begin(const Request& r, void* stream) {
  const int type = type_of(r.call.dtype);
  const int op = op_of(r.call.dtype, r.call.kind);
  const Moved move = moved(r.call.dtype);
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

/// Uses messages, or one reduction per rank, for a collective that NCCL lacks. The caller groups
/// these calls, so that they start together.
void NcclPath::exchange(const Request& r, void* stream) {
  const Moved move = moved(r.call.dtype);
  const Shares given = shares_of(r, group_.size());
  const Shares taken = r.recv_counts.empty() ? given : Shares::of(r.recv_counts);
  const int own = group_.rank();
  const bool root = own == r.call.root;
  for (int peer = 0; peer < group_.size(); ++peer) {
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
  if (!lock) return {};  // the thread that holds the lock detects a failure itself
  return why_failed();
}

/// Called with the lock held. Prefers the failure of the group, whose text contains the lost rank.
std::string NcclPath::why_failed() {
  if (std::string reason = group_.failure(); !reason.empty()) return reason;
  Result state = kSuccess;
  if (failure_.empty() && comm_ && nccl_.CommGetAsyncError(comm_, &state) == kSuccess &&
      state != kSuccess && state != kInProgress) {
    failure_ = fmt::format("NCCL reports an error on rank {}: {}", group_.rank(),
                           nccl_.GetErrorString(state));
  }
  return failure_;
}

/// Destroys the communicator on another thread. NCCL first ends the communicator's threads and
/// kernels, for which the caller must not wait: it may be the engine. A thread that polls NCCL in
/// settle() sees was_aborted() and releases the lock.
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

std::shared_ptr<direct::Path> make_path(Group& group, std::chrono::milliseconds timeout, Log log,
                                        std::shared_ptr<direct::Notices> notices, bool encrypts) {
  device::cuda::driver();
  return std::make_shared<NcclPath>(group, timeout, std::move(log), std::move(notices), encrypts);
}

}  // namespace mccl::nccl
