// The store that rank 0 serves over TCP. make_tcp_store() in mccl/store.h serves it on rank 0, and
// connects to it on the other ranks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/store.h"
#include "rendezvous/connections/dialing.h"

namespace mccl::rendezvous {

/// Describes how the other ranks connect to the store.
struct Entrance {
  /// Location of the store, for error messages: "at " and its address, or the path to it.
  std::string name;
  std::string advice;           ///< Advice for errors if no attempt was answered.
  std::string advice_when_met;  ///< Advice for errors after a failed handshake.
  /// Returns the addresses to dial. Called at every attempt, because names may resolve differently
  /// later. Throws PeerError if further attempts are useless. After any other Error, the caller
  /// tries again.
  std::function<std::vector<Candidate>()> ways;
  /// The relay that passes the connection on towards rank 0; empty if ways() returns the store's
  /// own addresses.
  std::optional<FirstHop> through = {};
};

struct StoreLimits {
  /// Maximum number of clients, several for each rank of a large job; further clients are refused.
  std::size_t clients = std::size_t{1} << 14;
  /// Clients that take longer than this to send a request or receive an answer are disconnected.
  Clock::duration transfer = std::chrono::seconds(30);
};

/// Makes rank 0's store, which is served at the listeners. `access` holds the key that clients must
/// have; its rank and size are not set. Throws Error if a key file is needed and cannot be made,
/// and InvalidArgument if `access` encrypts without a key.
std::shared_ptr<Store> serve_store(std::vector<Listener> listeners, Party access,
                                   const StoreReport& report, const StoreLimits& limits = {});

/// Makes the client by which `rank`, which is not 0, uses rank 0's store. Throws PeerError if the
/// store cannot be reached in time, and InvalidArgument if `access` encrypts without a key.
std::shared_ptr<Store> reach_store(Entrance entrance, int rank, Party access, milliseconds timeout);

/// The same as make_tcp_store(), but with the settings in `access` instead of the environment's.
std::shared_ptr<Store> make_tcp_store_for(Party access, const std::string& address, int rank,
                                          milliseconds timeout, const StoreReport& report);

/// Base class of stores that another process serves. That process may stop responding.
class RemoteAnswers : public Store {
 public:
  /// Sets the time by which the server must answer each request. Thread-safe.
  void answer_by(Clock::time_point limit) { limit_ = limit; }

 protected:
  Clock::time_point answer_limit() const { return limit_; }

 private:
  std::atomic<Clock::time_point> limit_{Clock::time_point::max()};
};

/// Sets the deadline for a store's answers, until the result is destroyed. The store must outlive
/// the result. No-op for a store in this process.
[[nodiscard]] inline auto limit_answers(Store& store, Clock::time_point limit) {
  auto end_limit = [](RemoteAnswers* remote) { remote->answer_by(Clock::time_point::max()); };
  auto* const remote = dynamic_cast<RemoteAnswers*>(&store);
  if (remote != nullptr) remote->answer_by(limit);
  return std::unique_ptr<RemoteAnswers, decltype(end_limit)>(remote, end_limit);
}

}  // namespace mccl::rendezvous
