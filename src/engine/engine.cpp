#include "engine/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/open_files.h"
#include "base/thread.h"
#include "mccl/error.h"
#include "rendezvous/key_agreement.h"
#include "rendezvous/meeting.h"

namespace mccl::engine {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

schedule::Facts facts_from(const Config& config) {
  schedule::Facts facts;
  facts.chunk_bytes = config.chunk_bytes;
  facts.small_bytes = config.small_msg_threshold;
  for (int i = 0; i < schedule::kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<schedule::Algorithm>(i);
    if (config.algorithm == schedule::name_of(algorithm)) facts.forced = algorithm;
  }
  return facts;
}

Clock::duration seconds_to_duration(double seconds) {
  return duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Looking beside the data takes the longer the more peers there are: it shall not fill the core.
constexpr std::chrono::milliseconds kBetweenLooks{1};
constexpr std::chrono::microseconds kLookAtAPeer{20};
/// So many ranks that wait on one host at a time may wake as often as this, to look at the time.
constexpr std::chrono::milliseconds kLongestNap{20};
constexpr int kRanksOfANap = 16;

/// Where more ranks than this share a core, each may have to wait longer for it than an interval of
/// liveness takes.
constexpr double kRanksOfACore = 16;

EngineOptions checked(EngineOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw InvalidArgument(
        fmt::format("rank {} of {} ranks: a rank is at least 0 and below the "
                    "number of ranks",
                    options.rank, options.size));
  }
  if (options.size > 1 && !options.store) {
    throw InvalidArgument(fmt::format("{} ranks need a store to meet through", options.size));
  }
  if (!options.metrics) options.metrics = std::make_shared<Metrics>();
  return options;
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(checked(std::move(options))),
      log_(options_.rank, log_level_of(options_.config.log_level)),
      spin_limit_(options_.config.spin_us),
      between_looks_(kBetweenLooks + options_.size * kLookAtAPeer),
      longest_nap_(kLongestNap * std::max(1, options_.size / kRanksOfANap)),
      facts_(facts_from(options_.config)),
      peers_(options_.size),
      liveness_(options_.size, seconds_to_duration(options_.config.liveness_interval)),
      beats_seen_(static_cast<std::size_t>(options_.size), 0),
      unmade_(options_.size),
      tally_(options_.metrics->tally()) {
  if (log_.enabled(LogLevel::info)) {
    log_.write(LogLevel::info, fmt::format("settings of rank {} of {}:\n{}", rank(), size(),
                                           to_table(options_.config)));
  }
  for (const std::string& warning : warnings_for(options_.config)) log_.warn("{}", warning);
  if (size() > 1) meet();
}

std::shared_ptr<Engine> Engine::create(EngineOptions options) {
  const std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  if (engine->size() > 1) {
    engine->thread_ =
        start_thread("mccl progress", [weak = engine->weak_from_this()] { progress_loop(weak); });
  }
  return engine;
}

/// On the progress thread when a callback there drops what holds the engine last.
Engine::~Engine() {
  shutdown();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Engine::meet() {
  raise_open_files_limit();
  rendezvous::Met met = rendezvous::meet({
      .rank = rank(),
      .size = size(),
      .store = options_.store,
      .config = options_.config,
      .log = log_,
      .on_refused = [metrics = options_.metrics] { metrics->record_refused_connection(); },
      .bell_pipe = wake_pipe_.writing_end(),
      .agree_on_key =
          [this](std::shared_ptr<Store> store, Clock::time_point deadline) {
            options_.store = std::move(store);
            return rendezvous::agree_on_key(
                {rank(), size(), options_.config, *options_.store, log_, deadline});
          },
  });
  mesh_ = std::move(met.mesh);
  for (int peer = 0; peer < size(); ++peer) {
    auto& control = met.controls[static_cast<std::size_t>(peer)];
    if (control) peers_.connect(peer, std::move(control));
  }
  mesh_->everyone_is_here();
  rendezvous::take_back_key(options_.config, rank(), *options_.store);
  arena_ = std::move(met.arena);
  if (arena_) sleeper_.emplace(arena_->header());
  neighbourhood_ = std::move(met.neighbourhood);
  ranks_per_core_ = met.ranks_per_core;
  crowded_ = ranks_per_core_ > 1;
  silence_s_ = options_.config.liveness_interval * std::max(1.0, ranks_per_core_ / kRanksOfACore);
  liveness_ = Liveness(size(), seconds_to_duration(silence_s_));
  // What is told through the store from now on comes from ranks that this one is connected to.
  met.store->watch_with([this] { throw_if_a_peer_is_lost(); });
}

void Engine::throw_if_a_peer_is_lost() {
  const std::lock_guard lock(progress_mutex_);
  housekeeping(Clock::now());
  for (int peer = 0; peer < size(); ++peer) {
    if (!peers_.lost(peer).empty()) {
      throw PeerError(fmt::format("rank {} is gone: {}", peer, peers_.lost(peer)));
    }
  }
}

std::shared_ptr<GroupState> Engine::make_group(const std::string& name, std::vector<int> members,
                                               milliseconds timeout) {
  for (const int member : members) {
    if (member < 0 || member >= size() || std::count(members.begin(), members.end(), member) != 1) {
      throw InvalidArgument(
          fmt::format("group '{}': rank {} is listed, but members are distinct ranks from 0 to {}",
                      name, member, size() - 1));
    }
  }
  if (std::find(members.begin(), members.end(), rank()) == members.end()) {
    throw InvalidArgument(
        fmt::format("group '{}': this rank, {}, is not among its members", name, rank()));
  }
  schedule::Facts facts = facts_;
  facts.nodes = nodes_of(members);
  // Told apart from groups of that name that came before, which others may still have.
  std::string identity = fmt::format("{}\n{}\n", name, fmt::join(members, " "));
  {
    std::lock_guard lock(inbox_mutex_);
    const std::optional<std::uint32_t> times = group_names_.give(name, group_id(identity));
    if (!times) {
      throw InvalidArgument(fmt::format("a group named '{}' exists on rank {}", name, rank()));
    }
    identity += std::to_string(*times);
  }
  const auto slot = std::make_shared<GroupState*>(nullptr);
  auto group = std::make_shared<GroupState>(
      name, group_id(identity), std::move(members), rank(), timeout, std::move(facts),
      options_.config.transport_crc, [this, slot](rendezvous::Purpose purpose, int member) {
        request_links(**slot, purpose, member);
      });
  *slot = group.get();
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.created.push_back(group);
    inbox_waiting_.store(true, std::memory_order_release);
  }
  return group;
}

schedule::Facts Engine::facts_of(GroupState& group) {
  std::lock_guard lock(progress_mutex_);
  return group.plans.facts();
}

void Engine::close_group(const std::shared_ptr<GroupState>& group) {
  if (abandoned_) return;
  {
    std::lock_guard lock(inbox_mutex_);
    group_names_.give_up(group->name);
    inbox_.closed.push_back(group);
    inbox_waiting_.store(true, std::memory_order_release);
  }
  wake();
}

void Engine::submit(std::span<const std::shared_ptr<Operation>> operations) {
  refuse_in_child();
  const Clock::time_point now = Clock::now();
  bool somebody_else_must_drive = false;
  {
    std::lock_guard lock(inbox_mutex_);
    // First, since it needs memory: a call that is not made must not count.
    inbox_.submitted.insert(inbox_.submitted.end(), operations.begin(), operations.end());
    for (const std::shared_ptr<Operation>& operation : operations) {
      operation->submitted = now;
      const bool point_to_point = operation->call.collective == Collective::send ||
                                  operation->call.collective == Collective::recv;
      if (!point_to_point) operation->call.sequence = ++operation->group->sequence;
      somebody_else_must_drive |= !operation->caller_waits;
    }
    inbox_waiting_.store(true, std::memory_order_release);
  }
  if (stopping_) {
    // Nobody drives any more: the calls fail here and now.
    std::unique_lock lock(progress_mutex_);
    drain_inbox();
    run_deferred(lock);
  } else if (size() == 1) {
    std::unique_lock lock(progress_mutex_);
    drive(lock, nullptr, Clock::time_point::max());
  } else if (somebody_else_must_drive) {
    wake();
  }
}

void Engine::abort(const std::shared_ptr<GroupState>& group, const std::string& reason) {
  group->fail({FailureKind::aborted, fmt::format("rank {} aborted it: {}", group->rank, reason)});
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.aborted.push_back(group);
    inbox_waiting_.store(true, std::memory_order_release);
  }
  wake();
}

void Engine::help(detail::WorkState& work, Clock::time_point deadline) {
  refuse_in_child();
  while (!work.done() && Clock::now() < deadline) {
    std::unique_lock lock(progress_mutex_, std::try_to_lock);
    if (!lock) {
      // The driver may be about to go to sleep without having seen this call.
      wake();
      work.sleep_until_done(deadline);
      return;
    }
    drive(lock, &work, deadline);
    const bool others_wait = lock && (!active_.empty() || inbox_waiting_);
    if (lock) lock.unlock();
    if (others_wait) wake();
    if (forking_ > 0) std::this_thread::yield();
  }
}

void Engine::shutdown() {
  if (abandoned_ || stopping_.exchange(true)) return;
  wake();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  std::unique_lock lock(progress_mutex_);
  drain_inbox();
  const std::map<std::uint64_t, std::shared_ptr<GroupState>> groups = std::move(groups_);
  groups_.clear();
  for (const auto& [id, group] : groups) {
    end_group(*group, fmt::format("rank {} has shut down", group->rank));
  }
  active_.clear();
  for (departing_.sweep(Clock::now()); !departing_.empty(); departing_.sweep(Clock::now())) {
    if (mesh_ && Clock::now() >= liveness_.next_beat()) beat(Clock::now());
    std::this_thread::sleep_for(milliseconds(1));
  }
  peers_.leave();
  options_.metrics->record_staging(-staging_bytes_);
  staging_bytes_ = 0;
  making_.clear();
  mesh_.reset();
  run_deferred(lock);
}

/// Its calls fail, what they have sent still arrives, and its memory is given back here, under the
/// lock: whoever still holds the group, or a Work of it, holds nothing of the engine's.
void Engine::end_group(GroupState& group, const std::string& reason) {
  departing_.add(group.channels.take_links(), Clock::now());
  group.fail({FailureKind::aborted, reason});
  group.failure_announced = true;  // the peers may still be using theirs, and are told if not
  settle_failure(group);
  for (const auto& [member, place] : group.release()) {
    let_go_of(group.members[static_cast<std::size_t>(member)], place);
  }
  forget_links(group);
  weigh(group);
}

void Engine::refuse_in_child() const {
  if (!abandoned_) return;
  throw InvalidArgument(
      "this process is the child of a fork: it cannot use its parent's groups; make its own");
}

void Engine::before_fork() noexcept {
  if (abandoned_ || stopping_) return;
  ++forking_;
  wake();
  progress_mutex_.lock();
  inbox_mutex_.lock();
  forker_ = std::this_thread::get_id();
}

void Engine::after_fork_in_parent() noexcept {
  if (forker_.load() != std::this_thread::get_id()) return;
  forker_ = std::thread::id();
  inbox_mutex_.unlock();
  progress_mutex_.unlock();
  --forking_;
  wake();
}

void Engine::abandon_after_fork() noexcept {
  abandoned_ = true;
  if (forker_.load() != std::this_thread::get_id())
    return;  // nobody knows in what state the parent's threads left this copy
  try {
    if (mesh_) mesh_->abandon();
    watched_.clear();
    peers_.watch(watched_);
    for (const auto& [id, group] : groups_) {
      group->channels.for_each_lane([this](Lane& lane) {
        watched_.push_back({lane.link().descriptor(), 0, 0});
      });
    }
    departing_.watch(watched_);
    for (const pollfd& descriptor : watched_) ::close(descriptor.fd);
    wake_pipe_.abandon();
    // Nothing of it may be destroyed here: its thread belongs to the parent.
    static_cast<void>(new std::shared_ptr<Engine>(shared_from_this()));
  } catch (...) {
    // Out of memory in a child: its descriptors close when it ends.
  }
  forker_ = std::thread::id();
  inbox_mutex_.unlock();
  progress_mutex_.unlock();
}

}  // namespace mccl::engine
