// The store that rank 0 serves over TCP; make_tcp_store() in mccl/store.h makes one for an address.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mccl/store.h"
#include "rendezvous/connections/dialing.h"
#include "rendezvous/store/store_server.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

/// How the other ranks connect to the store.
struct Entrance {
  std::string name;             ///< Used in messages.
  std::string advice;           ///< Advice if no attempt was answered.
  std::string advice_when_met;  ///< Advice if a connection was accepted but not proven.
  /// Returns the candidates. Called at every attempt, because names may resolve differently later.
  /// Throws Error, or PeerError if further attempts are useless.
  std::function<std::vector<Candidate>()> ways;
  /// The relay to go through; empty if the candidates are the store's own addresses.
  std::optional<FirstHop> through = {};
};

/// Makes rank 0's store, which is served at the listeners.
std::shared_ptr<Store> serve_store(std::vector<transport::tcp::Listener> listeners,
                                   const StoreAccess& access, const StoreReport& report);

/// Makes another rank's view of rank 0's store. Throws PeerError if it cannot be reached in time.
std::shared_ptr<Store> reach_store(Entrance entrance, int rank, StoreAccess access,
                                   std::chrono::milliseconds timeout);

/// Does the same as make_tcp_store(), except that `access` may admit anyone.
std::shared_ptr<Store> make_tcp_store_for(const StoreAccess& access, const std::string& address,
                                          int rank, std::chrono::milliseconds timeout,
                                          const StoreReport& report);

/// Base class of stores that another process serves. Their server may stop responding.
class RemoteAnswers : public Store {
 public:
  /// Sets the time by which the server must answer each request. Thread-safe.
  void answer_by(Clock::time_point limit) { limit_ = limit; }

 protected:
  Clock::time_point answer_limit() const { return limit_; }

 private:
  std::atomic<Clock::time_point> limit_{Clock::time_point::max()};
};

/// Sets the deadline for a store's answers, for the lifetime of this object. No-op for a store in
/// this process.
class AnswerLimit {
 public:
  /// The store must outlive this object.
  AnswerLimit(Store& store, Clock::time_point limit)
      : store_(dynamic_cast<RemoteAnswers*>(&store)) {
    if (store_ != nullptr) store_->answer_by(limit);
  }
  ~AnswerLimit() {
    if (store_ != nullptr) store_->answer_by(Clock::time_point::max());
  }
  AnswerLimit(const AnswerLimit&) = delete;
  AnswerLimit& operator=(const AnswerLimit&) = delete;

 private:
  RemoteAnswers* const store_;
};

}  // namespace mccl::rendezvous
