// Tests that only the mpi backend needs: how groups are made, and what a child of fork() may do.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <string>

#include "backend/conformance/checks.h"

namespace mccl::conformance {
namespace {

std::vector<int> everyone(const Context& context) {
  std::vector<int> ranks(static_cast<std::size_t>(context.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Returns another context of the job with this connect timeout, in seconds.
std::shared_ptr<Context> context_of(double connect_timeout) {
  Config config = Config::from_environment();
  config.connect_timeout = connect_timeout;
  return Context::create({-1, -1, nullptr, config, std::make_shared<Metrics>()});
}

/// Rank 1 arrives first and gives up. Rank 0 still waits when rank 2 arrives. No rank may enter the
/// MPI call, because that waits for all three without a limit. Later all of them arrive in time.
void a_member_that_has_given_up_is_not_waited_for(Context& context) {
  if (context.size() > 3) GTEST_SKIP() << "the test needs no more than 3 ranks";
  const bool is_first_to_go = context.rank() == 1;
  const auto job = context_of(is_first_to_go ? 1 : 10);
  char token = 1;
  if (context.rank() == 2) context.world()->recv({&token, 1, DType::u8}, 1, 0).wait();
  try {
    job->group("some", {0, 1, 2}, std::chrono::seconds(30));
    ADD_FAILURE() << "the group was made";
  } catch (const TimeoutError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("group 'some': not all of its ranks created the group in time"), said.npos)
        << said;
    EXPECT_NE(said.find(is_first_to_go ? "waiting for" : "failed on rank 1"), said.npos) << said;
  }
  if (is_first_to_go) context.world()->send({&token, 1, DType::u8}, 2, 0).wait();
  context.world()->barrier().wait();
  job->group("some", {0, 1, 2}, std::chrono::seconds(30))->barrier().wait();
  context.world()->barrier().wait();
}

void a_child_of_fork_can_let_go_of_groups(Context& context) {
  auto group = context.group("forked", everyone(context), std::chrono::seconds(30));
  context.before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends a child that hangs
    context.abandon_after_fork();
    try {
      group->barrier().wait();
    } catch (const Error&) {
      group.reset();
      ::_exit(0);
    }
    ::_exit(1);
  }
  context.after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(status, 0);
  group->barrier().wait();
}

constexpr Check kChecks[] = {
    {"AMemberThatHasGivenUpIsNotWaitedFor", 3, a_member_that_has_given_up_is_not_waited_for},
    {"AChildOfForkCanLetGoOfGroups", 1, a_child_of_fork_can_let_go_of_groups},
};

}  // namespace

std::span<const Check> mpi_checks() { return kChecks; }

}  // namespace mccl::conformance
