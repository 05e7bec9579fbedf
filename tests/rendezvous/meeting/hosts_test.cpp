// Tests that ranks on different hosts connect to each other. Each host is a network namespace.
#include <gtest/gtest.h>

#ifdef __linux__

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "mccl/store.h"
#include "rendezvous/meeting/mesh_job.h"
#include "support/hosts.h"

namespace mccl::rendezvous {
namespace {

using mccl::testing::Hosts;

LinkEvent meet(Mesh& mesh, int rank) {
  if (rank == 0) mesh.dial(WorldRank(1), {}, in(seconds(20)));
  std::vector<LinkEvent> events;
  const Clock::time_point limit = in(seconds(25));
  while (events.empty()) {
    mesh.progress(events);
    std::vector<pollfd> descriptors;
    mesh.watch(descriptors);
    if (Clock::now() >= limit) throw Error("the ranks do not meet");
    ::poll(descriptors.data(), descriptors.size(),
           events.empty() ? milliseconds_until(std::min(limit, mesh.next_deadline())) : 0);
  }
  if (events[0].link == nullptr) throw Error(events[0].reason);
  return std::move(events[0]);
}

/// Runs the process of one rank. Throws on any failure.
void run_rank(int rank, const std::string& store_address, const std::string& expected_path) {
  const auto store = make_tcp_store(store_address, rank, "key", seconds(20));
  Mesh mesh({rank, 2, Config(), "key", Log(rank, LogLevel::off), {}});
  store->set("endpoint" + std::to_string(rank), serialise(mesh.endpoint()));
  std::vector<Endpoint> endpoints;
  for (int peer = 0; peer < 2; ++peer)
    endpoints.push_back(parse_endpoint(store->get("endpoint" + std::to_string(peer), seconds(20))));
  if (endpoints[0].host == endpoints[1].host) throw Error("two hosts have the same identity");
  mesh.set_endpoints(endpoints);
  const LinkEvent event = meet(mesh, rank);
  if (rank == 0 && event.link->description().find(expected_path) == std::string::npos)
    throw Error("the link uses another path: " + event.link->description());
  // Rank 0 serves the store, so it must leave last.
  store->set("done" + std::to_string(rank), "yes");
  if (rank == 0) store->get("done1", seconds(20));
}

pid_t start_rank(const Hosts& hosts, int rank, const std::string& store_address,
                 const std::string& expected_path) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    hosts.enter(rank);
    run_rank(rank, store_address, expected_path);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

void expect_meeting(const std::string& store_address, const std::string& expected_path) {
  const Hosts hosts;
  if (!hosts.ready()) GTEST_SKIP() << "`ip netns` cannot make hosts here (it needs root)";
  const pid_t children[] = {start_rank(hosts, 0, store_address, expected_path),
                            start_rank(hosts, 1, store_address, expected_path)};
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST(Hosts, AreFoundByRoute) { expect_meeting("10.77.0.1:29400", "-> 10.77.0.2:"); }

TEST(Hosts, FindTheStoreOverIPv6) { expect_meeting("[fd77::1]:29400", "-> 10.77.0.2:"); }

}  // namespace
}  // namespace mccl::rendezvous

#endif  // __linux__
