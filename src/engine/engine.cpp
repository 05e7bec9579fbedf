#include "engine/engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/environment.h"
#include "base/keep.h"
#include "base/open_files.h"
#include "base/rank_path.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/version.h"
#include "engine/termination.h"
#include "mccl/error.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/meeting/meeting.h"
#include "rendezvous/store/key_agreement.h"
#include "transport/tcp/interfaces.h"

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

/// The control connections and transports are checked at an interval of kBetweenLooks plus
/// kLookAtAPeer per rank. A check takes longer with more peers, and checks must not occupy the
/// whole core.
constexpr std::chrono::milliseconds kBetweenLooks{1};
constexpr std::chrono::microseconds kLookAtAPeer{20};
/// Longest sleep while calls are pending, in a job of up to kRanksOfANap ranks. In larger jobs, the
/// limit grows in proportion to the number of ranks, because waking many ranks of one host only to
/// read the clock would load the host.
constexpr std::chrono::milliseconds kLongestNap{20};
constexpr int kRanksOfANap = 16;

Clock::duration silence_before_giving_up(const Config& config, double ranks_per_core) {
  return seconds_to_duration(config.liveness_interval * patience_of(ranks_per_core));
}

/// Returns a text such as "rank 1" or "ranks 0, 2 to 5".
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t first = 0, last = 0; first < ranks.size(); first = ++last) {
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{} {}", first == 0 ? "" : ",", ranks[first]);
    if (last == first + 1) text += fmt::format(", {}", ranks[last]);
    if (last > first + 1) text += fmt::format(" to {}", ranks[last]);
  }
  return text;
}

EngineOptions checked(EngineOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw InvalidArgument(
        fmt::format("invalid rank {} of {} ranks: a rank must be at least 0 and less than the "
                    "number of ranks",
                    options.rank, options.size));
  }
  if (options.size > 1 && !options.store) {
    throw InvalidArgument(fmt::format(
        "a job of {} ranks needs a store, through which the ranks find each other", options.size));
  }
  options.config.chunk_bytes = chunk_bytes_of(options.config);
  if (!options.metrics) options.metrics = std::make_shared<Metrics>();
  return options;
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(checked(std::move(options))),
      log_(options_.rank, log_options(options_.config)),
      between_looks_(kBetweenLooks + options_.size * kLookAtAPeer),
      longest_nap_(kLongestNap * std::max(1, options_.size / kRanksOfANap)),
      facts_(facts_from(options_.config)),
      driver_(*this, std::chrono::microseconds(options_.config.spin_us)),
      met_(meet()),
      ranks_per_core_(met_.ranks_per_core),
      memory_(met_.shared_memory),
      recorder_(
          std::make_shared<FlightRecorder>(FlightOrigin{.job = met_.store ? met_.store->name() : "",
                                                        .host = host_name(),
                                                        .rank = options_.rank,
                                                        .size = options_.size})),
      peers_(options_.size),
      heart_(peers_, memory_, silence_before_giving_up(options_.config, ranks_per_core_)),
      reports_(peers_, [this] { return report(); }),
      links_(
          WorldRank(options_.rank), std::move(met_.transports),
          seconds_to_duration(options_.config.connect_timeout), peers_,
          [this](std::uint64_t id) {
            GroupState* group = groups_.find(id);
            return group ? &group->channels() : nullptr;
          },
          log_,
          [this](std::string_view transport) {
            if (completions_.counts()) options_.metrics->record_link(transport);
          }),
      staging_(options_.metrics),
      completions_(options_.metrics, *recorder_, staging_, log_),
      surroundings_{.config = options_.config,
                    .log = log_,
                    .peers = peers_,
                    .links = links_,
                    .completions = completions_,
                    .staging = staging_,
                    .metrics = *options_.metrics,
                    .memory = *memory_,
                    .along_cables = options_.wiring != nullptr,
                    .look_beside_soon = [this] { next_look_ = {}; },
                    .caller_drives = [this] { return driver_.caller_drives(); },
                    .on_failure =
                        [this] {
                          if (status_server_) status_server_->write_record();
                        },
                    .reads_processes = options_.config.cross_memory == "on"},
      groups_(options_.size, surroundings_) {
  options_.metrics->keep(recorder_);
  if (met_.rdma_cabling) cabling_ = *met_.rdma_cabling;
  if (options_.wiring) cabling_ = options_.wiring->cabling();
  if (ranks_per_core_ > 1) driver_.share_cores();
  staging_.watch(memory_->arena);
  std::map<std::string, std::vector<int>> ways;
  for (WorldRank peer(0); peer.number() < static_cast<int>(met_.controls.size()); ++peer) {
    auto& control = met_.controls[peer.index()];
    if (!control) continue;
    const bool is_relayed = met_.relayed.contains(peer.number());
    peers_.connect(peer, std::move(control), is_relayed);
    heart_.expect(peer, seconds_to_duration(options_.config.connect_timeout));
    if (is_relayed) heart_.be_patient_with(peer);
    ways[links_.describe(peer)].push_back(peer.number());
  }
  for (const auto& [way, ranks] : ways) log_.info("{}: {}", ranks_text(ranks), way);
  start_metrics_server();
  if (size() == 1) return;
  status_server_.emplace(options_.config, *recorder_, log_,
                         StatusServer::Sources{[this] { return status_json(); },
                                               [this] { return status_of_others_json(); }});
  rendezvous::take_back_key(options_.config, rank(), *options_.store);
  // From here on, this rank is connected to all ranks that write to the store. A wait for a value
  // in the store fails once one of these ranks is lost.
  met_.store->watch_with([this] { throw_if_a_peer_is_lost(); });
}

std::shared_ptr<Engine> Engine::create(EngineOptions options) {
  std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  if (engine->size() > 1) {
    engine->thread_ =
        start_thread("mccl progress", [weak = engine->weak_from_this()] { progress_loop(weak); });
  }
  if (engine->met_.uses_rdma) {
    engine->at_termination_ =
        at_termination([weak = engine->weak_from_this(), closed = engine->links_are_closed_] {
          if (const auto alive = weak.lock()) alive->shutdown();
          // Another thread may have begun the shutdown, or be destroying the engine.
          closed->wait(false);
        });
  }
  return engine;
}

/// The destructor runs on the progress thread if a callback there drops the last reference to the
/// engine. A thread cannot join itself, so the progress thread is then detached.
Engine::~Engine() {
  shutdown();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

rendezvous::Met Engine::meet() {
  if (rank() == 0 && log_.enabled(LogLevel::info)) {
    const std::string changed = changed_settings(options_.config, process_environment());
    log_.info("mccl {}, {} rank{}; settings: {}", version(), size(), size() == 1 ? "" : "s",
              changed.empty() ? "the defaults" : changed);
  }
  if (log_.enabled(LogLevel::debug)) {
    log_.write(LogLevel::debug, fmt::format("settings of rank {} of {}:\n{}", rank(), size(),
                                            to_table(options_.config)));
  }
  for (const std::string& warning : warnings_for(options_.config)) log_.warn("{}", warning);
  if (size() == 1) {
    rendezvous::Met alone;
    alone.shared_memory = std::make_shared<node::SharedMemory>();
    return alone;
  }
  raise_open_files_limit();
  return rendezvous::meet({
      .rank = rank(),
      .size = size(),
      .store = options_.store,
      .config = options_.config,
      .log = log_,
      .on_refused = [metrics = options_.metrics] { metrics->record_refused_connection(); },
      .on_repaired = [metrics = options_.metrics] { metrics->record_repaired_link(); },
      .bell_pipe = driver_.bell_pipe(),
      .wiring = options_.wiring,
      .verbs = options_.verbs,
      .has_gpus = options_.has_gpus,
      .agree_on_key =
          [this](std::shared_ptr<Store> store, Clock::time_point deadline) {
            options_.store = std::move(store);
            return rendezvous::agree_on_key({.rank = rank(),
                                             .size = size(),
                                             .config = options_.config,
                                             .store = *options_.store,
                                             .log = log_,
                                             .deadline = deadline,
                                             .file = &key_file_});
          },
  });
}

void Engine::throw_if_a_peer_is_lost() {
  const std::lock_guard lock(driver_.mutex());
  hear_and_connect(Clock::now());
  for (WorldRank peer(0); peer.number() < size(); ++peer) {
    if (!peers_.lost(peer).empty()) throw PeerError(gone_text(peer, peers_.lost(peer)));
  }
}

void Engine::submit(std::span<const std::shared_ptr<Operation>> operations) {
  refuse_in_child();
  const Clock::time_point now = Clock::now();
  bool somebody_else_must_drive = false;
  inbox_.submit([&](OperationList& submitted) {
    for (const std::shared_ptr<Operation>& operation : operations) {
      operation->submitted = now;
      operation->held_back.store(false, std::memory_order_release);
      if (is_collective(operation->call))
        operation->call.sequence = operation->group->next_sequence();
      somebody_else_must_drive |= !operation->caller_waits;
      submitted.push_back(operation);
    }
  });
  if (driver_.stopping()) {
    // The engine has been shut down, so no thread drives, and take_in() fails the calls.
    std::unique_lock lock(driver_.mutex());
    take_in();
    run_callbacks(lock);
  } else if (size() == 1) {
    std::unique_lock lock(driver_.mutex());
    driver_.drive(lock, nullptr, Clock::time_point::max());
  } else if (somebody_else_must_drive) {
    driver_.wake();
  }
}

void Engine::help(detail::WorkState& work, Clock::time_point deadline) {
  refuse_in_child();
  driver_.help(work, deadline);
}

void Engine::abort(const std::shared_ptr<GroupState>& group, const std::string& reason) {
  fail(group, aborted("rank {} aborted the group: {}", group->membership().rank, reason));
}

void Engine::fail(const std::shared_ptr<GroupState>& group, Failure failure) {
  if (!group->mark_failed(std::move(failure))) return;
  inbox_.abort(group);
  driver_.wake();
}

void Engine::refuse_in_child() const {
  if (!abandoned_) return;
  throw InvalidArgument(
      "this process is the child of a fork and cannot use its parent's groups; create groups in "
      "the child");
}

void Engine::before_fork() noexcept {
  if (abandoned_ || driver_.stopping()) return;
  driver_.make_way();
  inbox_.mutex().lock();
  if (options_.wiring) options_.wiring->before_fork();
  forker_ = std::this_thread::get_id();
}

void Engine::after_fork_in_parent() noexcept {
  if (forker_.load() != std::this_thread::get_id()) return;
  forker_ = std::thread::id();
  if (options_.wiring) options_.wiring->after_fork_in_parent();
  inbox_.mutex().unlock();
  driver_.go_on();
}

void Engine::abandon_after_fork() noexcept {
  abandoned_ = true;
  if (forker_.load() != std::this_thread::get_id())
    return;  // the fork happened without the locks, so this copy may be inconsistent
  try {
    links_.abandon();
    Sleep beside;
    peers_.watch(beside);
    std::vector<pollfd> open = std::move(beside.watched);
    groups_.for_each([&open](GroupState& group) {
      group.channels().for_each_lane([&open](Lane& lane) {
        open.push_back({lane.link().descriptor(), 0, 0});
      });
    });
    groups_.departing().watch(open);
    for (const pollfd& descriptor : open) ::close(descriptor.fd);
    driver_.abandon();
    if (status_server_) status_server_->abandon();
    if (metrics_server_) metrics_server_->abandon();
    if (options_.wiring) options_.wiring->abandon_after_fork();
    // The engine must not be destroyed here, because its thread exists only in the parent.
    keep_for_ever(shared_from_this());
  } catch (...) {
    // The child is out of memory. Its descriptors close when it ends.
  }
  forker_ = std::thread::id();
  inbox_.mutex().unlock();
  driver_.mutex().unlock();
}

}  // namespace mccl::engine
