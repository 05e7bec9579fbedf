// Limits how long a rank waits at start-up for answers from a store in another process.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

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
