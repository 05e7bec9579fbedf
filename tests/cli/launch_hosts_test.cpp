// Tests how `mccl launch` finds its hosts: flags, hostfiles, Slurm.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "cli/launch/hostfile.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string refused(const std::string& text) {
  return refusal([&] { parse_hostfile("desk.json", text); });
}

TEST(LaunchHost, IsReadAsSshReadsIt) {
  EXPECT_EQ(parse_host("", "a").name, "a");
  const Host full = parse_host("", "me@a.example:2222");
  EXPECT_EQ(full.user, "me");
  EXPECT_EQ(full.name, "a.example");
  EXPECT_EQ(full.port, 2222);
  EXPECT_EQ(parse_host("", "fd77::1").name, "fd77::1");
  EXPECT_EQ(parse_host("", "[fd77::1]:22").port, 22);
  EXPECT_EQ(parse_host("", "fe80::1%eth0").name, "fe80::1%eth0");
}

TEST(LaunchHost, IsWrittenAsItWasRead) {
  for (const char* text : {"a", "me@a", "me@a:222", "[fd77::1]:22", "fd77::1", "me@[::1]:65535"})
    EXPECT_EQ(text_of(parse_host("", text)), text);
}

TEST(LaunchHost, RefusesAnInvalidHostByName) {
  for (const char* text : {"", "@a", "a:", "a:0", "a:65536", "a:b", "a b", "-oProxyCommand=x",
                           "[a]:1", "[fd77::1", "a;b", "a$b", "a\nb", "me@", "[fd77::1]22", "a@-b"})
    EXPECT_THAT(refusal([&] { parse_host("--hosts", text); }), HasSubstr("--hosts: ")) << text;
}

TEST(LaunchHost, SlotsBehindAColonAreNoPort) {
  for (const char* text : {"a:1", "me@a:4", "[fd77::1]:8", "a:128"}) {
    EXPECT_THAT(refusal([&] { parse_host("--hosts", text); }), HasSubstr("give -n ")) << text;
  }
}

TEST(LaunchHostfile, RefusesADuplicateKey) {
  EXPECT_THAT(refusal([] { parse_hostfile("f", R"([{"ssh": "a"}, {"ssh": "b", "ssh": "c"}])"); }),
              HasSubstr("f, line 1, column"));
  EXPECT_THAT(refusal([] { parse_hostfile("f", R"({"hosts": [{"ssh": "a"}], "hosts": []})"); }),
              HasSubstr("the key \"hosts\" for the second time"));
  EXPECT_EQ(
      parse_hostfile("f", R"([{"ssh": "a", "env": {"ssh": "x"}}, {"ssh": "b"}])").hosts.size(), 2U);
}

TEST(LaunchHostfile, ReadsBothFormsOfMlx) {
  const Hostfile list = parse_hostfile("f", R"([{"ssh": "a", "ips": ["10.0.0.1"]}, {"ssh": "b"}])");
  EXPECT_EQ(list.hosts.size(), 2U);
  EXPECT_THAT(list.hosts[0].addresses, ElementsAre("10.0.0.1"));
  const Hostfile object = parse_hostfile("f", R"({"backend": "jaccl", "envs": ["A=1", "B=x=y"],
               "hosts": [{"ssh": "a", "rdma": [null, "r0"]}, {"ssh": "b", "rdma": [["r1"], null]}]})");
  EXPECT_EQ(object.backend, "jaccl");
  EXPECT_EQ(object.environment.at("B"), "x=y");
  EXPECT_EQ(object.hosts[1].rdma[0][0], "r1");
}

TEST(LaunchHostfile, AcceptsEveryKeyOfAHost) {
  const Host host =
      parse_hostfile("f", R"([{"ssh": "a", "user": "me", "port": 2222, "slots": 4, "python": "/p",
                               "cwd": "/w", "env": {"A": "1"}}])")
          .hosts[0];
  EXPECT_EQ(text_of(host), "me@a:2222");
  EXPECT_EQ(host.slots, 4);
  EXPECT_EQ(host.python, "/p");
  EXPECT_EQ(host.directory, "/w");
  EXPECT_EQ(host.environment.at("A"), "1");
}

TEST(LaunchHostfile, IgnoresUnknownKeysWithOneWarning) {
  const Hostfile file = parse_hostfile(
      "f", R"({"x": 1, "hosts": [{"ssh": "a", "slot": 2}, {"ssh": "b", "comment": ["y"]}]})");
  EXPECT_EQ(file.hosts.size(), 2U);
  EXPECT_FALSE(file.hosts[0].slots.has_value());
  const std::string warning = warning_of(file);
  EXPECT_THAT(warning, HasSubstr("\"x\" of f, \"slot\" of f.hosts[0] (did you mean \"slots\"?), "
                                 "\"comment\" of f.hosts[1]"));
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1);
  EXPECT_EQ(warning_of(parse_hostfile("f", R"([{"ssh": "a"}])")), "");
}

TEST(LaunchHostfile, AddressesMayBeNames) {
  const Hostfile file = parse_hostfile("f", R"([{"ssh": "a", "ips": ["a.local", "fd00::1"]}])");
  EXPECT_THAT(file.hosts[0].addresses, ElementsAre("a.local", "fd00::1"));
}

TEST(LaunchHostfile, DevicesAreOnlyCheckedForTheBackendThatReadsThem) {
  for (const char* text : {R"([{"ssh": "a", "rdma": [null, null]}])",
                           R"([{"ssh": "a", "rdma": [null, "r"]}, {"ssh": "b"}])"}) {
    const Hostfile file = parse_hostfile("f", text);
    for (const Backend backend : {Backend::any, Backend::ring, Backend::nccl, Backend::mpi})
      EXPECT_NO_THROW(check_rdma("f", file.hosts, backend)) << text;
    for (const Backend backend : {Backend::jaccl, Backend::jaccl_ring})
      EXPECT_THAT(refusal([&] { check_rdma("f", file.hosts, backend); }),
                  HasSubstr("a list with a device for each of the"))
          << text;
  }
}

TEST(LaunchHostfile, ErrorsNameTheFileThePositionAndTheExpectedValue) {
  EXPECT_THAT(refused("[\n{\"ssh\": \"a\",}\n]"),
              HasSubstr("desk.json, line 2, column 13: expected JSON, a list of hosts"));
  EXPECT_THAT(refused("3"), HasSubstr("desk.json: expected a list of hosts"));
  EXPECT_THAT(refused("[]"), HasSubstr("desk.json: expected a list of 1 to"));
  EXPECT_THAT(refused("{}"), HasSubstr("desk.json: expected \"hosts\""));
  EXPECT_THAT(refused(R"([{"ips": []}])"), HasSubstr("desk.json[0]: expected \"ssh\""));
  EXPECT_THAT(refused(R"([{"ssh": "a"}, {"ssh": "a b"}])"), HasSubstr("desk.json[1].ssh: "));
  EXPECT_THAT(refused(R"([{"ssh": "a", "slots": 0}])"),
              HasSubstr("[0].slots: expected an integer"));
  for (const char* address : {"a:1", "me@a", "[::1]"})
    EXPECT_THAT(refused(fmt::format(R"([{{"ssh": "a", "ips": ["{}"]}}])", address)),
                HasSubstr("[0].ips[0]: expected an address of the host, or its name"));
  EXPECT_THAT(refused(R"([{"ssh": "a", "ips": ["a b"]}])"), HasSubstr("[0].ips[0]: "));
  EXPECT_THAT(refused(R"([{"ssh": "a", "rdma": [1]}])"), HasSubstr("[0].rdma[0]: expected null"));
  EXPECT_THAT(refused(R"({"envs": ["1=2"], "hosts": [{"ssh": "a"}]})"),
              HasSubstr("desk.json.envs[0]: \"1=2\" does not set a variable"));
  EXPECT_THAT(refusal([] { read_hostfile("/nowhere/x.json"); }),
              HasSubstr("/nowhere/x.json: No such"));
}

std::string rdma_refused(const std::string& rows, Backend backend) {
  std::vector<Host> hosts = parse_hosts("", "a,b,c,d");
  const auto table = nlohmann::json::parse(rows);
  for (std::size_t i = 0; i < hosts.size(); ++i) hosts[i].rdma = table[i];
  return refusal([&] { check_rdma("desk.json", hosts, backend); });
}

constexpr const char* kMesh =
    R"([[null,"x","x","x"],["x",null,"x","x"],["x","x",null,"x"],["x",["x","y"],"x",null]])";
constexpr const char* kRing =
    R"([[null,"x",null,"x"],["x",null,"x",null],[null,"x",null,"x"],["x",null,"x",null]])";

TEST(LaunchRdma, AcceptsAMeshAndARing) {
  for (const Backend backend : {Backend::any, Backend::jaccl, Backend::jaccl_ring})
    EXPECT_EQ(rdma_refused(kMesh, backend), "(accepted)");
  EXPECT_EQ(rdma_refused(kRing, Backend::any), "(accepted)");
  EXPECT_EQ(rdma_refused(kRing, Backend::jaccl_ring), "(accepted)");
  EXPECT_THAT(
      rdma_refused(kRing, Backend::jaccl),
      HasSubstr("desk.json: \"rdma\" has no device from a (#0) to c (#2), b (#1) to d (#3), "
                "c (#2) to a (#0) and 1 more; jaccl needs"));
}

TEST(LaunchRdma, ErrorsNameTheHostsOfASelfLinkAndOfAMissingLink) {
  EXPECT_THAT(refused(R"([{"ssh": "a", "rdma": [null, "r"]}, {"ssh": "b", "rdma": ["r", "s"]}])"),
              HasSubstr("\"rdma\" of b (#1): expected null for the host itself"));
  EXPECT_THAT(refused(R"([{"ssh": "a", "rdma": [null, null]}, {"ssh": "b", "rdma": ["r", null]}])"),
              HasSubstr("no device from a (#0) to b (#1)"));
}

TEST(LaunchRdma, JacclWithoutDevicesIsRefused) {
  const std::vector<Host> hosts = parse_hosts("", "a,b");
  EXPECT_EQ(refusal([&] { check_rdma("f", hosts, Backend::any); }), "(accepted)");
  EXPECT_THAT(refusal([&] { check_rdma("f", hosts, Backend::jaccl); }), HasSubstr("rdma"));
}

TEST(LaunchHostfile, RefusesDeepNesting) {
  const std::string deep = "[\n" + std::string(300'000, '[') + std::string(300'000, ']') + "]";
  EXPECT_THAT(refused(deep), HasSubstr("desk.json, line 2, column 65: "));
  EXPECT_THAT(refused("{\"hosts\": " + deep + "}"), HasSubstr("brackets more than 64 deep"));
}

TEST(LaunchHostfile, RefusesAnOverflowingNumber) {
  const std::string refusal = refused("[{\"ssh\": \"a\",\n \"slots\": 1e400}]");
  EXPECT_THAT(refusal, HasSubstr("desk.json, line 2, column "));
  EXPECT_THAT(refusal, HasSubstr("a number too large"));
  EXPECT_THAT(refusal, Not(HasSubstr("json.exception")));
}

TEST(LaunchHostfile, ArbitraryTextGivesHostsOrAnError) {
  const std::string seed =
      R"({"backend":"ring","envs":["A=1"],"hosts":[{"ssh":"me@a:1","ips":["10.0.0.1"],"slots":2,"rdma":[null]}]})";
  std::mt19937 random(9);
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      const std::size_t at = random() % text.size();
      if (random() % 2) {
        text[at] = static_cast<char>(random() % 128);
      } else {
        text.erase(at, random() % 6);
      }
      if (text.empty()) break;
    }
    try {
      EXPECT_FALSE(parse_hostfile("f", text).hosts.empty());
    } catch (const InvalidArgument&) {
      continue;
    }
  }
}

TEST(LaunchSlurm, TasksPerNode) {
  EXPECT_THAT(expand_tasks_per_node("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(expand_tasks_per_node("1"), ElementsAre(1));
  for (const char* text : {"", "x", "2(x", "2(x)", "2(x0)", "2(x9999999)", "2,,3", "-1", "2(x2)3"})
    EXPECT_THROW(expand_tasks_per_node(text), InvalidArgument) << text;
}

TEST(LaunchSlurm, AnAllocationGivesHostsWithSlots) {
  const auto hosts = hosts_of_allocation(
      {{"SLURM_JOB_NODELIST", "n[1-2],m"}, {"SLURM_TASKS_PER_NODE", "4(x2),3"}});
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[1].name, "n2");
  EXPECT_EQ(hosts[2].slots, 3);
  EXPECT_THAT(refusal([] { hosts_of_allocation({}); }), HasSubstr("salloc"));
  EXPECT_THAT(refusal([] {
                hosts_of_allocation({{"SLURM_JOB_NODELIST", "a"}, {"SLURM_TASKS_PER_NODE", "1,2"}});
              }),
              HasSubstr("lists 1 nodes"));
}

}  // namespace
}  // namespace mccl::cli::launch
