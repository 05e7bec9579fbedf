#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mccl {
namespace {

Cores on(std::vector<int> allowed) { return {std::move(allowed), 0, "-"}; }
Cores within(double quota, const std::string& group) { return {{0, 1, 2, 3}, quota, group}; }

TEST(Cores, ComputesTheQuotaAsTimeOverPeriod) {
  EXPECT_EQ(quota_of_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(quota_of_cpu_max("max 100000\n"), 0);
  EXPECT_EQ(quota_of_cpu_max(""), 0);
  EXPECT_EQ(quota_of_cpu_max("100000 0"), 0);
  EXPECT_EQ(quota_of_cfs("400000\n", "100000\n"), 4);
  EXPECT_EQ(quota_of_cfs("-1\n", "100000\n"), 0);
  EXPECT_EQ(quota_of_cfs("", ""), 0);
}

TEST(Cores, FindsTheControlGroupOfTheController) {
  const char* first = "4:memory:/a\n2:cpu,cpuacct:/jobs/7\n0::/all\n";
  EXPECT_EQ(control_group_path(first, "cpu"), "/jobs/7");
  EXPECT_EQ(control_group_path(first, ""), "/all");
  EXPECT_EQ(control_group_path(first, "cpuset"), "");
  EXPECT_EQ(control_group_path("nonsense", "cpu"), "");
  EXPECT_EQ(control_group_path("0::\n0::jobs/7\n", ""), "");
}

TEST(Cores, SurviveFormattingAndParsing) {
  for (const Cores& cores : {on({0}), on({0, 1, 2, 5, 7, 8}), on({}), within(2.5, "3:99")}) {
    EXPECT_EQ(parse_cores(serialise(cores)), cores) << serialise(cores);
  }
  EXPECT_EQ(serialise(on({0, 1, 2, 5, 7, 8})), "0-2,5,7-8 0 -");
  for (const char* text : {"", "0", "0 1", "x 0 -", "3-1 0 -", "0-999999999 0 -", "1,0 0 -",
                           "0 -1 -", "0 nan -", "0,,1 0 -", "0-1 1e0 -"}) {
    EXPECT_FALSE(parse_cores(text)) << text;
  }
}

TEST(Cores, AreSharedIfRanksOutnumberThem) {
  const auto crowd = [](std::vector<Cores> ranks) { return processes_per_core(ranks, 8); };
  EXPECT_EQ(crowd({on({0, 1}), on({0, 1})}), 1);
  EXPECT_EQ(crowd({on({0}), on({0})}), 2) << "both on one core";
  EXPECT_EQ(crowd({on({0}), on({1})}), 1);
  EXPECT_EQ(crowd({on({0, 1}), on({0, 1}), on({0, 1})}), 1.5);
  EXPECT_EQ(crowd({on({3}), on({3}), on({0, 1, 2, 3, 4, 5})}), 2) << "others have room";
  EXPECT_EQ(crowd({on({}), on({})}), 0.25) << "nothing is known but the number of cores";
}

TEST(Cores, AreSharedIfTheQuotaIsBelowTheNumberOfRanks) {
  const auto crowd = [](std::vector<Cores> ranks) { return processes_per_core(ranks, 8); };
  EXPECT_EQ(crowd({within(1, "a"), within(1, "a")}), 2) << "one container for both";
  EXPECT_EQ(crowd({within(1, "a"), within(1, "b")}), 1) << "a container each";
  EXPECT_EQ(crowd({within(0.5, "a"), within(2, "b")}), 2);
}

#ifdef __linux__
TEST(Cores, OfAPinnedProcessFollowItsAffinity) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<int> before = cores_of_this_process().allowed;
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET(before.back(), &last);
    if (::sched_setaffinity(0, sizeof last, &last) != 0) ::_exit(2);
    ::_exit(cores_of_this_process().allowed == std::vector<int>{before.back()} ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

}  // namespace
}  // namespace mccl
