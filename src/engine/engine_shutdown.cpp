// The part of Engine that leaves the job.
#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/signal_watch.h"
#include "engine/engine.h"
#include "rendezvous/cabling/wiring.h"

namespace mccl::engine {
namespace {

/// Longest time for which rank 0, at shutdown, waits for other ranks that still read from its
/// store.
constexpr std::chrono::seconds kLastArrival{5};
/// Time after which a leaving rank logs for which peers it waits.
constexpr std::chrono::seconds kQuietWait{2};

}  // namespace

void Engine::shutdown() noexcept {
  if (abandoned_ || !driver_.stop()) return;
  driver_.wake();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  std::unique_lock lock(driver_.mutex());
  take_in();
  groups_.end_all();
  Engine::run_callbacks(lock);  // runs the callbacks of the calls that end_all() has ended
  if (!lock.owns_lock()) lock.lock();
  const SignalWatch signals;
  see_links_off(lock, signals);
  peers_.leave();
  links_.close();
  links_are_closed_->store(true);
  links_are_closed_->notify_all();
  staging_.close();
  if (memory_->arena && memory_->arena->heap()) memory_->arena->heap()->keep_no_spare();
  Engine::run_callbacks(lock);
  if (lock.owns_lock()) lock.unlock();
  if (status_server_) status_server_->stop();
  metrics_server_.reset();
  if (!options_.wiring) return;
  // wiring->leave() blocks while this rank relays connections of other ranks. This rank's own
  // connection to the store is closed first, because the ranks that relay this connection wait for
  // its end in their own leave().
  met_.store.reset();
  options_.store.reset();
  options_.wiring->leave(signals);
}

/// Waits until the peers have received all data that this rank sent, but at most for
/// MCCL_CONNECT_TIMEOUT, and only until a signal interrupts the wait. Rank 0 also waits, for at
/// most kLastArrival, until no other rank needs its store any more. Meanwhile this rank answers
/// control messages and gives up silent peers.
void Engine::see_links_off(std::unique_lock<std::mutex>& lock,
                           const SignalWatch& signals) noexcept {
  Departing& departing = groups_.departing();
  const Clock::time_point start = Clock::now();
  bool has_told = false;
  departing.end_by(start + milliseconds_of(options_.config.connect_timeout));
  for (Clock::time_point now = start;; now = Clock::now()) {
    departing.sweep(now);
    const bool has_data = !departing.empty();
    if (!has_data && (now >= start + kLastArrival || !somebody_still_arrives())) return;
    if (signals.has_arrived())
      return departing.give_up("had not received everything when a signal ended this rank's wait");
    if (has_data && now >= start + kQuietWait && !std::exchange(has_told, true)) tell_of_the_wait();
    look_beside_safely(now);
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

void Engine::tell_of_the_wait() noexcept {
  try {
    log_.info(
        "this rank leaves the job, but waits until its peers have received what it sent: {}. The "
        "wait ends after {:.3g} s (MCCL_CONNECT_TIMEOUT), or at SIGINT or SIGTERM",
        groups_.departing().text(), options_.config.connect_timeout);
  } catch (const std::bad_alloc&) {
    // Memory has run out. The wait continues without the message.
  }
}

void Engine::announce_arrival() {
  const std::lock_guard lock(driver_.mutex());
  awaits_arrivals_ = rank() == 0;
  if (!awaits_arrivals_) peers_.send(WorldRank(0), {.kind = ControlKind::arrived});
}

/// True on rank 0 while another rank may still have to read values from rank 0's store. Rank 0's
/// shutdown must wait for these ranks, because the store often ends with rank 0's process.
bool Engine::somebody_still_arrives() {
  if (!awaits_arrivals_) return false;
  peers_.receive([](WorldRank, const ControlMessage&) {}, [](WorldRank, const std::string&) {});
  return !peers_.have_all_arrived();
}

}  // namespace mccl::engine
