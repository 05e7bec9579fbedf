// Bounds the wait for answers of a store on another host while the ranks meet.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

/// Interface of stores on another host, whose server may stop responding.
class RemoteAnswers : public Store {
 public:
  /// Sets the time by which the server must answer each request. Thread-safe.
  void answer_by(Clock::time_point limit) { limit_ = limit; }

 protected:
  Clock::time_point answer_limit() const { return limit_; }

 private:
  std::atomic<Clock::time_point> limit_{Clock::time_point::max()};
};

/// Limits the answers of a store for the lifetime of this object. No-op for a store of this
/// process.
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
