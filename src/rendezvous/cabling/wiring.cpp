#include "rendezvous/cabling/wiring.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/settings.h"
#include "base/thread.h"
#include "mccl/error.h"
#include "rendezvous/connections/binding.h"
#include "rendezvous/store/key_agreement.h"

namespace mccl::rendezvous {
namespace {

/// Maximum number of connections along one cable.
constexpr std::ptrdiff_t kMostTimes = 16;
/// Time after which a departing rank logs that it waits for ranks whose connections it relays.
constexpr Clock::duration kQuietlyStays = 2s;
/// Time between two looks for a signal that ends this wait.
constexpr Clock::duration kBetweenSignals = 50ms;
/// Time limits for connecting to the next rank on a path, and of one attempt.
constexpr Clock::duration kOnwardsLimit = 20s;
constexpr Clock::duration kOnwardsAttempt = 500ms;

/// True if the hostfile also lists the port for another rank, which may run on this host.
bool is_shared(const WiringOptions& options, int port) {
  AddressTable others = options.table;
  others.erase(others.begin() + options.rank);
  return std::ranges::any_of(others, [port](const std::vector<HostPort>& addresses) {
    return std::ranges::find(addresses, port, &HostPort::port) != addresses.end();
  });
}

Party self_of(const WiringOptions& options) {
  Party self = party_of(options.config);
  self.rank = options.rank;
  self.size = static_cast<int>(options.table.size());
  return self;
}

AddressTable reachable(const WiringOptions& options) {
  AddressTable table = options.table;
  for (std::size_t rank = 0; options.may_reach && rank < table.size(); ++rank) {
    if (!options.may_reach(static_cast<int>(rank))) table[rank].clear();
  }
  return table;
}

}  // namespace

Wiring::Wiring(WiringOptions options)
    : options_(std::move(options)),
      log_(options_.rank, log_options(options_.config)),
      liveness_(milliseconds_of(options_.config.liveness_interval)),
      buffer_bytes_(socket_buffer_bytes_of(options_.config)),
      self_(self_of(options_)),
      acceptor_({}, self_, log_, options_.on_refused),
      port_(listen()),
      discovery_(self_, reachable(options_), port_, log_),
      relaying_(options_.config.congestion_control,
                milliseconds_of(options_.config.connect_timeout),
                milliseconds_of(link_retry_of(options_.config)), log_) {
  for (const Destination each : {Destination::links, Destination::store}) inlets_[each];
  thread_ = std::make_unique<std::thread>();
  *thread_ = start_thread("mccl wiring", [this] { run(); });
}

/// Listens at the addresses that the hostfile lists for this rank. If the hostfile lists the port
/// of the first address for another rank as well, also listens at a free port of that address.
/// Returns the port at which the other ranks reach this rank along cables.
std::uint16_t Wiring::listen() {
  for (const Address& address : own_addresses(options_.table, options_.rank)) {
    try {
      const bool is_any = address.is_wildcard() && address.family() == AF_INET6;
      listen_at(is_any ? listen_everywhere(address.port(), buffer_bytes_)
                       : Listener(address, buffer_bytes_));
    } catch (const BindError& error) {
      throw InvalidArgument(
          fmt::format("rank {} cannot listen at its address in the hostfile, {}: {}; another "
                      "program uses the port, or the address belongs to another host",
                      options_.rank, address.text(), error.what()));
    }
  }
  const Address first = heard_at_.front();
  if (!is_shared(options_, first.port())) return first.port();
  listen_at(Listener(first.with_port(0), buffer_bytes_));
  return heard_at_.back().port();
}

void Wiring::listen_at(Listener listener) {
  heard_at_.push_back(listener.address());
  acceptor_.listen_also(std::move(listener));
}

Wiring::~Wiring() {
  if (abandoned_) {
    // This is the child of a fork, and the thread exists only in the parent. A thread of the child
    // may have got its identity, so it is neither joined nor detached.
    (void)thread_.release();
  } else {
    leave();
  }
}

void Wiring::leave(const SignalWatch& signals) {
  std::unique_lock lock(mutex_);
  if (abandoned_ || !thread_ || !thread_->joinable()) return;
  leaves_ = true;
  wake_.wake();
  const auto is_free = [this] {
    const auto has_ended = [this](int rank) { return discovery_.link_state().has_ended(rank); };
    return !relaying_.is_needed(Clock::now(), has_ended) || trouble_ || !has_agreed_;
  };
  const Clock::time_point told_at = Clock::now() + kQuietlyStays;
  bool has_told = false;
  while (!changed_.wait_for(lock, kBetweenSignals, is_free) && !signals.has_arrived()) {
    if (Clock::now() >= told_at && !std::exchange(has_told, true))
      log_.info("this rank relays connections of other ranks, so it waits for them to finish");
  }
  is_over_ = true;
  wake_.wake();
  lock.unlock();
  thread_->join();
  close();  // Frees the ports now, even if this object is still referenced.
}

void Wiring::close() noexcept {
  acceptor_.close();
  discovery_.close();
  relaying_.close();
}

void Wiring::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, options_.deadline, [this] { return has_agreed_ || trouble_; });
  if (trouble_) std::rethrow_exception(trouble_);
  if (has_agreed_) return;
  throw TimeoutError(fmt::format(
      "rank {} timed out (MCCL_CONNECT_TIMEOUT) waiting for cables that connect all ranks: {}. Are "
      "those ranks running with the same hostfile, and are the cables plugged in?",
      self_.rank, discovery_.trouble()));
}

void Wiring::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    try {
      serve(Clock::now());
    } catch (const std::exception& error) {
      trouble_ = std::current_exception();
      changed_.notify_all();
      log_.error(
          "rank {} no longer relays connections, so the ranks that it joined lose each other: {}",
          self_.rank, error.what());
      return;
    }
    std::vector<pollfd> watched{{wake_.descriptor(), POLLIN, 0}};
    acceptor_.watch(watched);
    discovery_.watch(watched);
    relaying_.watch(watched);
    const Clock::time_point until =
        std::min({acceptor_.next_deadline(), discovery_.next_deadline(), relaying_.next_deadline(),
                  has_agreed_ ? next_beat_ : Clock::time_point::max()});
    lock.unlock();
    ::poll(watched.data(), static_cast<nfds_t>(watched.size()), milliseconds_until(until));
    lock.lock();
    wake_.drain();
  }
}

void Wiring::serve(Clock::time_point now) {
  std::vector<Newcomer> newcomers;
  acceptor_.advance(now, newcomers);
  for (Newcomer& newcomer : newcomers) take(newcomer, now);
  discovery_.advance(now);
  if (!has_agreed_) listen_at_own_ends();
  if (const std::string fault = discovery_.fault(now); !fault.empty()) throw CorruptionError(fault);
  if (!has_agreed_ && discovery_.cabling()) agreed();
  if (const std::string death = discovery_.death(now); !has_agreed_ && !death.empty())
    throw PeerError(fmt::format("rank {} cannot join the job: {}", self_.rank, death));
  relaying_.advance(now);
  if (has_agreed_) watch_cables(now);
  if (leaves_) changed_.notify_all();
}

void Wiring::take(Newcomer& newcomer, Clock::time_point now) {
  switch (newcomer.key.purpose) {
    case Purpose::cable:
      // After the agreement, a connection for a cable is closed. It comes from a rank that probes
      // whether this rank is alive, or from a restarted process, which joins too late.
      if (has_agreed_ || (options_.may_reach && !options_.may_reach(newcomer.peer))) return;
      return discovery_.connected(newcomer.peer, std::move(newcomer.socket), newcomer.link_number,
                                  now);
    case Purpose::repair:
      return discovery_.connected_again(newcomer.peer, std::move(newcomer.socket),
                                        newcomer.key.group, now);
    case Purpose::relay:
      if (has_agreed_) return hand_over_or_pass_on(newcomer);
      return wait_for_agreement(newcomer);
    default:
      unexpected_.write(log_, LogLevel::warn, now,
                        fmt::format("rank {} connected to an address that is only for cables and "
                                    "relays; give every rank the same hostfile (MCCL_HOSTFILE)",
                                    newcomer.peer));
  }
}

void Wiring::wait_for_agreement(Newcomer& newcomer) {
  const auto is_of_peer = [&](const Newcomer& each) { return each.peer == newcomer.peer; };
  if (std::ranges::count_if(early_, is_of_peer) < static_cast<long>(kMostRelayed))
    return early_.push_back(std::move(newcomer));
  too_early_.write(log_, LogLevel::warn, Clock::now(),
                   fmt::format("rank {} asks for more than {} relayed connections before the ranks "
                               "have agreed on the cables; the others are closed",
                               newcomer.peer, kMostRelayed));
}

void Wiring::hand_over_or_pass_on(Newcomer& newcomer) {
  const std::uint64_t rank = newcomer.key.group;
  const auto destination = static_cast<Destination>(newcomer.key.rail);
  const auto inlet = inlets_.find(destination);
  if (rank >= static_cast<std::uint64_t>(self_.size) || inlet == inlets_.end()) {
    no_destination_.write(
        log_, LogLevel::warn, Clock::now(),
        fmt::format("rank {} asked this rank to relay a connection to rank {}, but the job has no "
                    "such rank, or the requested service (links or store) is unknown; the "
                    "connection is closed",
                    newcomer.peer, rank));
    return;
  }
  const auto to = static_cast<int>(rank);
  if (to == self_.rank) return inlet->second.hand_over(std::move(newcomer.socket));
  Way way = way_to(to, destination);
  relaying_.pass_on(newcomer.peer, to, std::move(newcomer.socket),
                    {.self = way.first.self,
                     .peer = way.first.rank,
                     .key = way.first.key,
                     .deadline = Clock::now() + kOnwardsLimit,
                     .candidates = std::move(way.candidates),
                     .attempt_limit = kOnwardsAttempt,
                     .buffer_bytes = buffer_bytes_,
                     .refused_for = kRefusedFor});
}

void Wiring::watch_cables(Clock::time_point now) {
  if (now >= next_beat_) {
    next_beat_ = now + liveness_ / kBeats;
    discovery_.beat();
  }
  std::vector<CutCable> all_cut = discovery_.cut(now, silence());
  for (const Cable& cable : discovery_.take_interrupted()) relaying_.drop(cable);
  for (CutCable& cut : all_cut) {
    relaying_.drop(cut.cable);
    if (!first_cut_) first_cut_ = cut;
    cut_.push_back(std::move(cut));
  }
}

/// Also listens at this rank's end of each cable. The hostfile may list only one end of a cable,
/// but the rank at either end may dial.
void Wiring::listen_at_own_ends() {
  for (const Address& end : discovery_.own_ends()) {
    const Address wanted = end.with_port(port_);
    if (is_covered(wanted, heard_at_)) continue;
    try {
      listen_at(Listener(wanted, buffer_bytes_));
    } catch (const BindError& error) {
      log_.debug("cannot listen at {} yet: {}", wanted.text(), error.what());
    }
  }
}

void Wiring::agreed() {
  cabling_ = *discovery_.cabling();
  for (int peer = 0; peer < self_.size; ++peer) {
    ends_.push_back(rails_over(discovery_.ends(peer), peer));
    ports_.push_back(discovery_.link_state().port_of(peer));
  }
  has_agreed_ = true;
  std::vector<Address> neighbours;
  for (const std::vector<CableEnds>& ends : ends_) {
    for (const CableEnds& end : ends) neighbours.push_back(end.there);
  }
  acceptor_.everyone_is_here(neighbours, Clock::now());
  changed_.notify_all();
  if (log_.enabled(LogLevel::info)) {
    std::vector<int> near;
    for (int peer = 0; peer < self_.size; ++peer) {
      if (cabling_.joins(self_.rank, peer)) near.push_back(peer);
    }
    log_.info("{} cables connect the {} ranks; this rank has cables to ranks {}",
              cabling_.cables().size(), self_.size, fmt::join(near, ", "));
  }
  for (Newcomer& newcomer : std::exchange(early_, {})) hand_over_or_pass_on(newcomer);
}

/// Returns the cables, followed by a repetition for every further port that the hostfile lists.
std::vector<CableEnds> Wiring::rails_over(const std::vector<CableEnds>& cables, int peer) const {
  // Ignores IPv6 scopes, which differ between hosts: both ranks must get the same number of rails.
  const auto times_of = [this](int rank, const Address& address) {
    const std::string host = bare_host(address);
    return std::ranges::count_if(
        options_.table[static_cast<std::size_t>(rank)],
        [&](const auto& each) { return each.host.substr(0, each.host.find('%')) == host; });
  };
  std::vector<CableEnds> rails = cables;
  for (std::ptrdiff_t time = 1; time < kMostTimes; ++time) {
    std::ranges::copy_if(cables, std::back_inserter(rails), [&](const CableEnds& cable) {
      return std::max(times_of(self_.rank, cable.here), times_of(peer, cable.there)) > time;
    });
  }
  return rails;
}

Wiring::Way Wiring::way_to(int rank, Destination destination) const {
  const int next = cabling_.next(self_.rank, rank);
  const auto port = ports_[static_cast<std::size_t>(next)];
  const auto group = static_cast<std::uint64_t>(rank);
  Way way{{}, {self_, next, {group, Purpose::relay, static_cast<std::uint8_t>(destination)}}};
  for (const CableEnds& end : ends(next))
    way.candidates.push_back({end.there.with_port(port), end.here, {}});
  return way;
}

std::vector<std::string> Wiring::own_ends() const {
  std::vector<std::string> hosts;
  for (const std::vector<CableEnds>& ends : ends_) {
    for (const CableEnds& end : ends)
      if (std::ranges::find(hosts, end.here.host()) == hosts.end())
        hosts.push_back(end.here.host());
  }
  return hosts;
}

Listener Wiring::inlet(Destination destination) {
  const std::lock_guard lock(mutex_);
  return inlets_.at(destination).listener();
}

std::vector<CutCable> Wiring::take_cut() {
  const std::lock_guard lock(mutex_);
  return std::exchange(cut_, {});
}

void Wiring::check() const {
  const std::lock_guard lock(mutex_);
  std::string why = are_meeting_ ? discovery_.death(Clock::now()) : "";
  if (first_cut_) why = fmt::format("{}: {}", text_of(first_cut_->cable), first_cut_->why);
  if (!why.empty())
    throw PeerError(fmt::format("rank {} cannot join the job: {}", self_.rank, why));
}

void Wiring::everyone_is_here() {
  const std::lock_guard lock(mutex_);
  are_meeting_ = false;
  discovery_.everyone_is_here();
}

void Wiring::abandon_after_fork() noexcept {
  abandoned_ = true;
  close();
  inlets_.clear();
  wake_.abandon();
  mutex_.unlock();
}

std::shared_ptr<Wiring> wire(int rank, int size, const Config& config,
                             const std::shared_ptr<Metrics>& metrics) {
  if (config.hostfile.empty()) return nullptr;
  AddressTable table = read_hostfile(config.hostfile);
  if (static_cast<int>(table.size()) != size) {
    throw InvalidArgument(fmt::format(
        "MCCL_HOSTFILE {} has the addresses of {} ranks, but the job has {} ranks; list the "
        "addresses of every rank of the job",
        config.hostfile, table.size(), size));
  }
  if (!may_be_sparse(table) || share_networks(table, rank)) return nullptr;
  if (config.job_key.empty() && keyless_of(config) == Keyless::same_user) {
    throw InvalidArgument(
        fmt::format("rank {} does not start: MCCL_HOSTFILE {} describes cables between hosts, and "
                    "ranks on several hosts need a key; {}",
                    rank, config.hostfile, kHowToMakeAKey));
  }
  auto wiring = std::make_shared<Wiring>(
      WiringOptions{.rank = rank,
                    .table = std::move(table),
                    .config = config,
                    .deadline = Clock::now() + milliseconds_of(config.connect_timeout),
                    .on_refused = [metrics] {
                      if (metrics) metrics->record_refused_connection();
                    }});
  wiring->wait();
  return wiring;
}

}  // namespace mccl::rendezvous
