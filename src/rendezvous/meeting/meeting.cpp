#include "rendezvous/meeting/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/open_files.h"
#include "base/value_text.h"
#include "mccl/error.h"
#include "node/arena.h"
#include "rendezvous/cabling/wiring.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/meeting/mesh.h"
#include "rendezvous/meeting/neighbours.h"
#include "rendezvous/meeting/rdma_devices.h"
#include "rendezvous/meeting/second_process.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/key_agreement.h"
#include "rendezvous/store/tcp_store.h"
#include "transport/shm/transport.h"

namespace mccl::rendezvous {
namespace {

using node::Arena;
using node::LocalListener;

/// Room in the local listener's queue for other programs, beside the ranks of this host.
constexpr int kLocalQueue = 64;
/// Maximum number of control connections dialed at a time. More would compete for the same cores.
constexpr std::size_t kMostDials = 16;
constexpr milliseconds kLongestWaitForMesh{100};
/// Interval at which ranks of this host that have not connected yet are dialed, to find out whether
/// they are alive. At most kMostProbes are dialed at a time.
constexpr milliseconds kProbeAfter{250};
constexpr std::size_t kMostProbes = 4;
constexpr LinkKey kProbe{.group = 0, .purpose = Purpose::control, .rail = 255};
/// Interval between looks for failures of other ranks: kBetweenLooksAtStore plus
/// kBetweenLooksOfEach per rank, because all ranks of a job ask the same store.
constexpr Clock::duration kBetweenLooksAtStore = milliseconds(200);
constexpr Clock::duration kBetweenLooksOfEach = milliseconds(2);
/// Time at the end of MCCL_CONNECT_TIMEOUT, but at most a quarter of it, for questions to the store
/// after a wait has failed: which ranks are missing, and why another rank has failed.
constexpr milliseconds kLastAnswers{1500};
constexpr int kPartForLastAnswers = 4;
/// Descriptors for listeners, and for files that are open only while the ranks connect.
constexpr std::size_t kPassingFiles = 16;

/// Word that a rank with GPUs appends to the host and the cores that it publishes.
constexpr std::string_view kHasGpus = "gpus";

class Meeting {
 public:
  explicit Meeting(const MeetingOptions& options)
      : o_(options),
        begun_(Clock::now()),
        time_(milliseconds_of(o_.config.connect_timeout)),
        last_answers_(std::min(kLastAnswers, time_ / kPartForLastAnswers)),
        deadline_(begun_ + time_ - last_answers_) {}

  Met run() {
    const auto limit = limit_answers(*o_.store, begun_ + time_);
    arrive();
    try {
      // Rank 0 reports first which ranks are missing.
      const Clock::time_point last = o_.rank == 0 ? deadline_ : deadline_ + grace();
      key_ = secret_of_run(o_.agree_on_key(met_.store, last), met_.store->name());
      publish_places();
      listen();
      connect();
      share_memory();
    } catch (const std::exception& error) {
      met_.store->fail(error);
      throw;
    }
    met_.store->watch_with({});
    hand_over();
    return std::move(met_);
  }

 private:
  /// Time that ranks other than 0 wait longer than rank 0.
  milliseconds grace() const { return last_answers_ * 2 / 3; }
  Exchange exchange() const { return {*met_.store, key_, o_.rank, o_.size, deadline_, grace()}; }
  bool shares_memory() const {
    return o_.config.transport == "auto" || o_.config.transport == "shm";
  }

  void arrive() {
    try {
      met_.store = std::make_shared<Incarnation>(
          o_.store,
          JoinRequest{.rank = o_.rank,
                      .size = o_.size,
                      .agreement = agreement_of_arrival(o_.config),
                      .advice = advice_without_key(o_.config),
                      .on_second = warning_of_second(o_.log, o_.rank)},
          time_, [this] { check_cables(); }, last_answers_);
    } catch (const TimeoutError&) {
      report_to_first_process(o_);
      throw;
    }
  }

  void publish_places() {
    host_ = transport::tcp::host_identity();
    std::string mine = host_ + "\n" + serialise(cores_of_this_process());
    if (o_.has_gpus) mine += fmt::format("\n{}", kHasGpus);
    const std::vector<std::string> cards = exchange().all_gather("places", mine);
    std::vector<Cores> cores;
    met_.all_have_gpus = true;
    for (int rank = 0; rank < o_.size; ++rank) {
      std::string_view card = cards[static_cast<std::size_t>(rank)];
      const std::string_view host = next_part(card, '\n');
      const auto found = parse_cores(next_part(card, '\n'));
      if (!found) {
        throw CorruptionError(
            fmt::format("rank {} published an invalid description of its host and cores; is the "
                        "store shared with another program?",
                        rank));
      }
      met_.all_have_gpus &= card == kHasGpus;
      if (host == host_) cores.push_back(*found);
    }
    here_ = cores.size();
    met_.ranks_per_core =
        processes_per_core(cores, static_cast<int>(std::thread::hardware_concurrency()));
    check_open_files();
  }

  void check_open_files() const {
    const std::size_t controls = static_cast<std::size_t>(o_.size) - 1;
    const std::size_t shared = shares_memory() ? node::kNeighbourDescriptors * (here_ - 1) : 0;
    const std::size_t needed = open_files() + controls + shared + kPassingFiles;
    if (needed <= open_files_limit()) return;
    throw InvalidArgument(
        fmt::format("rank {} needs about {} open files for a job of {} ranks, {} of them on this "
                    "host, but its limit is {}: raise the limit (ulimit -n)",
                    o_.rank, needed, o_.size, here_, open_files_limit()));
  }

  void listen() {
    const bool one_host = here_ == static_cast<std::size_t>(o_.size);
    mesh_ =
        std::make_unique<Mesh>(MeshOptions{.rank = o_.rank,
                                           .size = o_.size,
                                           .config = o_.config,
                                           .job_key = key_,
                                           .log = o_.log,
                                           .on_refused = o_.on_refused,
                                           .reach = one_host ? Reach::this_host : Reach::any_host,
                                           .wiring = o_.wiring,
                                           .ranks_per_core = met_.ranks_per_core,
                                           .on_repaired = o_.on_repaired});
    make_arena();
    rdma_ = find_rdma(o_.config, WorldRank(o_.rank), o_.size, one_host, o_.verbs);
    const std::string name = listener_ ? listener_->name() : kNoMemory;
    const std::string devices = transport::rdma::serialise(rdma_.card);
    const std::vector<std::string> cards = exchange().all_gather(
        "endpoints", name + "\n" + devices + "\n" + serialise(mesh_->endpoint()));
    for (std::string_view card : cards) {  // format: "listener\nRDMA devices\nendpoint"
      const WorldRank rank(static_cast<int>(names_.size()));
      names_.emplace_back(next_part(card, '\n'));
      rdma_cards_.push_back(transport::rdma::parse_card(rank, next_part(card, '\n')));
      endpoints_.push_back(parse_endpoint(card));
    }
    mesh_->set_endpoints(endpoints_);
  }

  /// Makes the arena and the local listener. If that fails, logs a warning, and this rank shares no
  /// memory; with MCCL_TRANSPORT=shm, throws PeerError instead.
  void make_arena() {
    if (!shares_memory()) return;
    try {
      arena_ = Arena::make(node::arena_bytes(here_ - 1),
                           o_.config.shared_buffers ? node::heap_bytes() : 0);
      listener_.emplace(static_cast<int>(here_) + kLocalQueue);
    } catch (const Error& error) {
      arena_.reset();
      if (o_.config.transport == "shm") {
        throw PeerError(
            fmt::format("MCCL_TRANSPORT is shm, but rank {} cannot share memory: {}; set "
                        "MCCL_TRANSPORT to auto to reach the other ranks through tcp",
                        o_.rank, error.what()));
      }
      o_.log.warn("no memory is shared with other ranks: {}", error.what());
    }
  }

  /// Makes the control connections. The higher rank of a pair dials, as for every link. A rank
  /// dials the lower ranks in descending order, so that not all ranks begin with the same rank.
  void connect() {
    met_.controls.resize(static_cast<std::size_t>(o_.size));
    missing_ = o_.size - 1;
    next_probe_ = Clock::now() + kProbeAfter;
    for (next_to_dial_ = o_.rank - 1; missing_ > 0;) {
      for (; next_to_dial_ >= 0 && dials_ < kMostDials; --next_to_dial_, ++dials_)
        mesh_->dial(WorldRank(next_to_dial_), {}, deadline_);
      probe();
      advance_mesh();
      if (missing_ == 0) break;
      if (const std::string trouble = mesh_->accepting_trouble(); !trouble.empty())
        throw PeerError(fmt::format("rank {} cannot join the job: {}", o_.rank, trouble));
      if (Clock::now() >= deadline_) give_up();
      look_now_and_then();
      std::vector<pollfd> watched;
      mesh_->watch(watched);
      const Clock::time_point until = std::min(
          {deadline_, mesh_->next_deadline(), Clock::now() + Clock::duration(kLongestWaitForMesh)});
      ::poll(watched.data(), watched.size(), milliseconds_until(until));
    }
    for (const int peer : std::exchange(probed_, {})) mesh_->cancel(WorldRank(peer), kProbe);
  }

  /// Dials ranks of this host that have not dialed this rank, to detect those that have died.
  void probe() {
    if (Clock::now() < next_probe_) return;
    next_probe_ = Clock::now() + kProbeAfter;
    for (int i = o_.rank + 1; i < o_.size && probed_.size() < kMostProbes; ++i) {
      last_probed_ = last_probed_ + 1 < o_.size ? std::max(last_probed_, o_.rank) + 1 : o_.rank + 1;
      const auto peer = static_cast<std::size_t>(last_probed_);
      if (met_.controls[peer] || endpoints_[peer].host != host_) continue;
      // The peer dials this rank and reports a timeout itself, so the probe must not time out
      // first.
      const Clock::time_point never = deadline_ + std::chrono::hours(1);
      if (probed_.insert(last_probed_).second) mesh_->dial(WorldRank(last_probed_), kProbe, never);
    }
  }

  void advance_mesh() {
    std::vector<transport::LinkEvent> events;
    mesh_->progress(events);
    for (transport::LinkEvent& event : events) {
      if (!event.link) {
        // If another rank has failed, look() throws that rank's failure, which explains more than
        // this failed connection.
        met_.store->look();
        throw PeerError(fmt::format("rank {} cannot join the job: {}", o_.rank, event.reason));
      }
      const int peer = event.peer.number();
      if (event.key == kProbe) {
        probed_.erase(peer);
        continue;
      }
      // Keep only control links, because groups make their links after the meeting.
      if (event.key.purpose != Purpose::control) continue;
      auto& control = met_.controls[event.peer.index()];
      if (!control) --missing_;
      if (!control && peer < o_.rank) --dials_;
      control = std::move(event.link);
    }
  }

  [[noreturn]] void give_up() const {
    std::vector<bool> connected;
    for (const auto& control : met_.controls) connected.push_back(control != nullptr);
    connected[static_cast<std::size_t>(o_.rank)] = true;
    throw TimeoutError(fmt::format(
        "rank {} waited {} s (MCCL_CONNECT_TIMEOUT) for all ranks to connect: {}; are those ranks "
        "running, and can they reach port {} of this rank (firewall; MCCL_PORT_BASE fixes the "
        "port)?",
        o_.rank, o_.config.connect_timeout, roll_call(connected, "connected"),
        mesh_->endpoint().port));
  }

  void check_cables() const {
    if (o_.wiring) o_.wiring->check();
  }

  void look_now_and_then() {
    const Clock::time_point now = Clock::now();
    if (now < next_look_) return;
    met_.store->look();
    next_look_ = now + kBetweenLooksAtStore + o_.size * kBetweenLooksOfEach;
  }

  void share_memory() {
    node::Neighbours found = find_neighbours(search());
    listener_.reset();
    met_.store->close();
    met_.store->watch_with([this] {
      check_cables();
      advance_mesh();
      check_controls();
    });
    shared_ = agree_on_nodes(exchange(), o_.rank, o_.size, std::move(found));
    const std::size_t others = shared_.neighbours.size();
    if (o_.config.transport == "shm" && others + 1 != static_cast<std::size_t>(o_.size)) {
      throw PeerError(
          fmt::format("MCCL_TRANSPORT is shm, but rank {} shares memory with only {} of the {} "
                      "other ranks: set MCCL_TRANSPORT to auto to reach the rest through tcp",
                      o_.rank, others, o_.size - 1));
    }
    if (others == 0) arena_.reset();
    if (shares_memory()) warn_of_missing_neighbours(shared_, o_.rank, endpoints_, o_.log);
  }

  NeighbourOptions search() {
    NeighbourOptions options{.rank = o_.rank,
                             .key = key_,
                             .names = names_,
                             .listener = listener_ ? &*listener_ : nullptr,
                             .arena = arena_.get(),
                             .bell_pipe = o_.bell_pipe,
                             .controls = {},
                             .deadline = deadline_,
                             .watch_beside = [this](auto& entries) { mesh_->watch(entries); },
                             .advance_beside =
                                 [this] {
                                   advance_mesh();
                                   look_now_and_then();
                                 }};
    for (const auto& control : met_.controls) options.controls.push_back(control.get());
    return options;
  }

  /// Throws PeerError if a control connection has ended, and therefore a rank.
  void check_controls() const {
#ifdef POLLRDHUP
    constexpr short kEnd = POLLRDHUP;
#else
    constexpr short kEnd = 0;
#endif
    std::vector<pollfd> entries;
    for (const auto& control : met_.controls)
      entries.push_back({control ? control->descriptor() : -1, kEnd, 0});
    if (::poll(entries.data(), entries.size(), 0) <= 0) return;
    for (std::size_t peer = 0; peer < entries.size(); ++peer) {
      if ((entries[peer].revents & (kEnd | POLLHUP | POLLERR)) == 0) continue;
      throw PeerError(
          fmt::format("rank {} died while the ranks connected (its control connection ended); see "
                      "its last output",
                      peer));
    }
  }

  void hand_over() {
    shared_.arena = std::move(arena_);
    const auto memory = std::make_shared<const node::SharedMemory>(std::move(shared_));
    met_.shared_memory = memory;
    mesh_->everyone_is_here();
    if (o_.wiring) o_.wiring->everyone_is_here();
    met_.relayed = mesh_->relayed();
    met_.rdma_cabling = cabling_of(o_.config, memory->nodes, rdma_cards_);
    auto rdma = make_rdma({.rank = o_.rank,
                           .config = o_.config,
                           .log = o_.log,
                           .endpoints = endpoints_,
                           .cards = rdma_cards_,
                           .ranks_per_core = met_.ranks_per_core},
                          std::move(rdma_));
    if (memory->arena)
      met_.transports.push_back(transport::shm::make_shm_transport(memory, o_.config.cross_memory));
    met_.uses_rdma = rdma != nullptr;
    if (rdma) met_.transports.push_back(std::move(rdma));
    met_.transports.push_back(std::move(mesh_));
  }

  const MeetingOptions& o_;
  const Clock::time_point begun_;
  const milliseconds time_;           ///< MCCL_CONNECT_TIMEOUT.
  const milliseconds last_answers_;   ///< Time reserved within time_; see kLastAnswers.
  const Clock::time_point deadline_;  ///< Deadline of every wait; see kLastAnswers.
  std::string host_;
  std::size_t here_ = 1;  ///< Number of ranks on this host.
  SecretBytes key_;
  std::unique_ptr<Mesh> mesh_;
  std::vector<Endpoint> endpoints_;     ///< Indexed by rank.
  std::shared_ptr<node::Arena> arena_;  ///< Null if no memory is shared.
  node::SharedMemory shared_;
  std::optional<LocalListener> listener_;
  std::vector<std::string> names_;  ///< Names of local listeners, by rank.
  transport::rdma::Survey rdma_;
  std::vector<transport::rdma::Card> rdma_cards_;  ///< Indexed by rank.
  int missing_ = 0;                                ///< Number of missing control connections.
  int next_to_dial_ = -1;
  std::size_t dials_ = 0;
  std::set<int> probed_;
  int last_probed_ = 0;
  Clock::time_point next_probe_;
  Clock::time_point next_look_ = Clock::now() + kBetweenLooksAtStore;
  Met met_;
};

}  // namespace

Met meet(const MeetingOptions& options) { return Meeting(options).run(); }

}  // namespace mccl::rendezvous
