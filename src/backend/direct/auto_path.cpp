#include "backend/direct/auto_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "backend/direct/agreement.h"
#include "device/registry.h"
#include "mccl/error.h"

namespace mccl::direct {
namespace {

/// A rank's report about its call of a collective: where the call's data are, and whether the call
/// may wait for the other ranks.
constexpr std::byte kOnHost{0};    ///< Some data are in host memory.
constexpr std::byte kMeets{1};     ///< All data are in device memory, and the call may wait.
constexpr std::byte kOnDevice{2};  ///< All data are in device memory, but the call must not wait.

}  // namespace

/// The reports of all ranks about one collective.
struct AutoPath::Asked {
  std::byte own{};
  std::vector<std::byte> all;
  Work work;
};

AutoPath::AutoPath(Group& group, std::vector<PathCandidate> candidates,
                   std::chrono::milliseconds timeout, Log log)
    : group_(group), candidates_(std::move(candidates)), timeout_(timeout), log_(std::move(log)) {}

AutoPath::~AutoPath() { abort(); }

void AutoPath::before_collective(const Request& request, std::chrono::milliseconds timeout,
                                 bool may_meet) {
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::open && state != State::through_host) return;
  may_meet_ = may_meet;
  if (!std::has_single_bit(++calls_)) return;
  ask(!only_on_device(request) ? kOnHost : may_meet ? kMeets : kOnDevice, timeout);
}

/// Starts the all_gather of the reports without waiting for it. A later call that may block reads
/// the reports. If it throws, the caller's collective is not made either and does not count.
void AutoPath::ask(std::byte answer, std::chrono::milliseconds timeout) {
  const State before = state_.exchange(State::asks);
  try {
    auto asked = std::make_shared<Asked>();
    asked->own = answer;
    asked->all.resize(static_cast<std::size_t>(group_.size()));
    asked->work =
        group_.all_gather({&asked->own, 1, DType::u8},
                          {asked->all.data(), asked->all.size(), DType::u8}, {.timeout = timeout});
    // The callback keeps the memory of the reports alive until the all_gather has ended.
    asked->work.on_done([asked](const std::exception_ptr&) {});
    if (before == State::open) asked_.push_back(std::move(asked));
  } catch (...) {
    --calls_;
    state_ = before;
    throw;
  }
  state_ = before;
}

Path* AutoPath::way_for(const Request& request) {
  if (!is_collective(request.call)) return nullptr;
  State state = state_.load(std::memory_order_acquire);
  if (state == State::open && may_meet_ && on_device(request)) {
    try {
      decide(device_of(request));
    } catch (const Error& error) {
      // Fail the group. This call then goes through the host, where it reports the group's error.
      if (group_.failure().empty()) group_.abort(error.what());
      stay_on_host(error.what());
    }
    state = state_.load(std::memory_order_acquire);
  }
  return state == State::direct && only_on_device(request) ? fastest_for(request) : nullptr;
}

void AutoPath::decide(Device device) {
  for (const std::shared_ptr<Asked>& asked : std::exchange(asked_, {})) {
    asked->work.wait();
    const auto count = [&all = asked->all](std::byte answer) {
      return std::count(all.begin(), all.end(), answer);
    };
    if (count(kMeets) == group_.size()) return meet(device);
    if (count(kOnHost) == group_.size() || count(kOnHost) == 0) continue;
    const auto other = std::find(asked->all.begin(), asked->all.end(), kOnHost);
    return stay_on_host(
        fmt::format("rank {} made the call with host memory", other - asked->all.begin()));
  }
}

void AutoPath::stay_on_host(const std::string& reason) {
  log_.info("group '{}': collectives on GPUs go through the host: {}", group_.name(), reason);
  state_ = State::through_host;
}

/// Creates the candidate paths and measures them. All ranks must call it. If it throws during a
/// collective, way_for() fails the group.
void AutoPath::meet(Device device) {
  state_ = State::meets;
  std::vector<std::string> names;
  std::vector<std::string> objections;
  Request probe;
  probe.call.collective = Collective::all_reduce;
  probe.call.dtype = probe.in.dtype = probe.out.dtype = DType::f32;
  probe.in.count = probe.out.count = probe.call.count = 1;
  probe.in.device = probe.out.device = device;
  for (const PathCandidate& candidate : candidates_) {
    std::shared_ptr<Path> way;
    std::string own;
    try {
      const bool has_it = inherited_ && inherited_->name() == candidate.name;
      way = has_it ? std::move(inherited_) : candidate.make();
    } catch (const Error& error) {
      own = error.what();
    }
    std::string objection = first_objection(group_, own);
    if (objection.empty() && !way->takes(probe)) objection = "see the warning above";
    if (!objection.empty()) {
      objections.push_back(fmt::format("{} not used ({})", candidate.name, objection));
      continue;
    }
    names.push_back(candidate.name);
    const std::lock_guard lock(mutex_);
    ways_.push_back(std::move(way));
    if (was_aborted()) ways_.back()->abort();
  }
  if (names.empty()) return stay_on_host(fmt::format("{}", fmt::join(objections, "; ")));
  own_queue_ = std::make_unique<device::SerialQueue>(device::depot_of(device));
  order_by(*own_queue_);
  choose(device, names);
  state_ = State::direct;
}

/// Measures each path and keeps the maximum time over all ranks, so that all ranks choose the same
/// path. If a rank has no memory for the measurements, no rank measures, and each call uses the
/// first candidate that supports it.
void AutoPath::choose(Device device, const std::vector<std::string>& names) {
  const auto all_ways = ways();
  figures_.assign(all_ways.size(), {});
  const bool several = all_ways.size() > 1;
  std::string own_objection;
  Scratch scratch;
  try {
    if (several) scratch = scratch_on(own_queue_->accelerator());
  } catch (const Error& error) {
    own_objection = error.what();
  }
  const std::string objection = several ? first_objection(group_, own_objection) : "";
  for (std::size_t way = 0; several && objection.empty() && way < all_ways.size(); ++way) {
    const Figures own =
        measure(*all_ways[way], *own_queue_, scratch, device, group_.size(), timeout_);
    for (const Figures& theirs : gather(group_, own)) figures_[way].take_slower(theirs);
  }
  std::vector<std::string> texts;
  for (std::size_t way = 0; way < names.size(); ++way) {
    const auto& row = figures_[way].seconds.front();
    texts.push_back(names.size() == 1 ? names[way]
                                      : fmt::format("{} ({:.3g}, {:.3g} and {:.3g} us)", names[way],
                                                    row[0] * 1e6, row[1] * 1e6, row[2] * 1e6));
  }
  log_.info("group '{}': collectives on {} use {}{}", group_.name(),
            own_queue_->accelerator().name(), fmt::join(texts, " or "),
            several && objection.empty()
                ? ", whichever is faster (times of all_reduce of 64 KiB, 2 MiB and 64 MiB)"
                : "");
}

Path* AutoPath::fastest_for(const Request& request) {
  const std::size_t bytes = request.call.count * size_of(request.call.dtype);
  if (order_.empty() || request.call.collective != last_call_ || bytes != last_bytes_) {
    order_ = fastest_first(figures_, request);
    last_call_ = request.call.collective;
    last_bytes_ = bytes;
  }
  // In State::direct, `ways_` does not change, so reading it needs no lock.
  for (const int way : order_) {
    if (ways_[static_cast<std::size_t>(way)]->takes(request)) {
      return ways_[static_cast<std::size_t>(way)].get();
    }
  }
  return nullptr;
}

void AutoPath::reach_memory(Device device) {
  if (state_ == State::open) return meet(device);
  if (state_ != State::direct) return;
  state_ = State::meets;
  for (const auto& way : ways()) way->reach_memory(device);
  state_ = State::direct;
}

std::shared_ptr<Path> AutoPath::split(Group* child, int color, int key) {
  if (state_ != State::direct) return {};
  for (const auto& way : ways()) {
    if (std::shared_ptr<Path> part = way->split(child, color, key)) return part;
  }
  return {};
}

bool AutoPath::inherits(const std::shared_ptr<Path>& given) {
  inherited_ = given;
  return true;
}

std::vector<std::shared_ptr<Path>> AutoPath::ways() const {
  const std::lock_guard lock(mutex_);
  return ways_;
}

std::string AutoPath::failure() {
  for (const auto& way : ways()) {
    if (std::string reason = way->failure(); !reason.empty()) return reason;
  }
  return {};
}

void AutoPath::end_calls() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& way : ways_) way->abort();
}

}  // namespace mccl::direct
