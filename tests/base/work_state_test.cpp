#include "base/work_state.h"

#include <gtest/gtest.h>

#include "mccl/error.h"
#include "mccl/work.h"

namespace mccl {
namespace {

class ManualState final : public detail::WorkState {
 public:
  std::string description() const override { return "a manual call"; }
  void end(std::exception_ptr error = nullptr) {
    for (const Work::Callback& callback : finish(error)) callback(error);
  }

  int waits = 0;  ///< Number of calls of help().

 protected:
  void help(Clock::time_point deadline) override {
    ++waits;
    sleep_until_done(deadline);
  }
};

/// The state of each part must learn that its caller has stopped waiting.
TEST(Work, OfABatchVisitsAllPartsBeforeItTimesOut) {
  const auto first = std::make_shared<ManualState>(), second = std::make_shared<ManualState>();
  const Work all = Work::all_of({Work(first), Work(), Work(second)});
  EXPECT_THROW(all.wait(std::chrono::milliseconds(1)), TimeoutError);
  EXPECT_EQ(first->waits, 1);
  EXPECT_EQ(second->waits, 1);
  first->end();
  second->end();
  all.wait();
  EXPECT_TRUE(Work::all_of({Work(), Work()}).done());
}

TEST(Work, OfAnEmptyBatchIsDone) {
  const Work work;
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.error(), nullptr);
  EXPECT_EQ(work.source(), -1);
  work.wait();
  bool called = false;
  work.on_done([&called](std::exception_ptr error) { called = error == nullptr; });
  EXPECT_TRUE(called);
}

TEST(Work, RethrowsTheErrorEachTime) {
  const auto state = std::make_shared<ManualState>();
  const Work work(state);
  EXPECT_THROW(work.wait(std::chrono::milliseconds(1)), TimeoutError);
  state->end(std::make_exception_ptr(PeerError("gone")));
  EXPECT_THROW(work.wait(), PeerError);
  EXPECT_THROW(work.wait(), PeerError);
  EXPECT_NE(work.error(), nullptr);
}

TEST(Work, WaitedForInSlicesReportsTheWholeTime) {
  using std::chrono::milliseconds;
  const auto state = std::make_shared<ManualState>();
  const Work work(state);
  int slices = 0;
  try {
    work.wait_in_slices(milliseconds(20), milliseconds(1), [&] { ++slices; });
    FAIL() << "it is not done";
  } catch (const TimeoutError& error) {
    EXPECT_STREQ(
        error.what(),
        "a manual call is not done after 20 ms; it continues until its own timeout: wait again, or "
        "abort the group");
  }
  EXPECT_GT(slices, 0);
  const auto stop = [] { throw InvalidArgument("enough"); };
  EXPECT_THROW(work.wait_in_slices({}, milliseconds(1), stop), InvalidArgument);
  // A TimeoutError of the call itself is not mistaken for the end of a slice.
  work.wait_in_slices({}, milliseconds(1), [&] { state->end(); });
  const auto failed = std::make_shared<ManualState>();
  failed->end(std::make_exception_ptr(TimeoutError("late")));
  EXPECT_THROW(Work(failed).wait_in_slices({}, milliseconds(1), stop), TimeoutError);
}

TEST(Work, EndsOnce) {
  const auto state = std::make_shared<ManualState>();
  const Work work(state);
  int calls = 0;
  work.on_done([&calls](std::exception_ptr) { ++calls; });
  state->end();
  state->end(std::make_exception_ptr(PeerError("too late")));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(work.error(), nullptr);
}

TEST(Work, OfABatchEndsWithTheLastCallAndFailsWithTheFirstError) {
  const auto first = std::make_shared<ManualState>();
  const auto second = std::make_shared<ManualState>();
  const Work both = Work::all_of({Work(first), Work(second)});
  first->end(std::make_exception_ptr(PeerError("first")));
  EXPECT_FALSE(both.done());
  EXPECT_THROW(both.wait(std::chrono::milliseconds(1)), TimeoutError);
  second->end(std::make_exception_ptr(AbortedError("second")));
  EXPECT_TRUE(both.done());
  EXPECT_THROW(both.wait(), PeerError);
  EXPECT_TRUE(Work::all_of({}).done());
}

}  // namespace
}  // namespace mccl
