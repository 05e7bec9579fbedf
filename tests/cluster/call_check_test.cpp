#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/checks.h"

namespace mccl::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Makes hosts a and b, each with interfaces c0 and c1 whose cables are plugged in.
std::vector<HostFacts> two_hosts_with_cables() {
  std::vector<HostFacts> hosts(2);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].host = i == 0 ? "a" : "b";
    hosts[i].system = System::gnu_linux;
    for (const char* name : {"c0", "c1"}) {
      Interface& interface = hosts[i].interfaces.emplace_back();
      interface.name = name;
      interface.up = true;
      interface.carrier = true;
    }
  }
  return hosts;
}

const Heard kFirst = {{0, "c0"}, {1, "c0"}};
const Heard kSecond = {{0, "c1"}, {1, "c1"}};

TEST(CheckCalls, FindNothingIfAllCallsAreAnswered) {
  EXPECT_THAT(check_calls(two_hosts_with_cables(), {.heard = {kFirst}}), IsEmpty());
  // The cable counts as found, because a call was heard in the other direction.
  const CallResults calls{.heard = {{kFirst.from, kFirst.at}}, .unanswered = {kFirst}, .deaf = {}};
  EXPECT_THAT(check_calls(two_hosts_with_cables(), calls), IsEmpty());
}

TEST(CheckCalls, NameTheFirewallThatDropsAnswers) {
  const CallResults calls{.heard = {kFirst}, .unanswered = {kSecond, kSecond}, .deaf = {}};
  const auto findings = check_calls(two_hosts_with_cables(), calls);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].id, "calls-blocked");
  EXPECT_EQ(findings[0].where, "b (c1)");
  EXPECT_THAT(findings[0].why, HasSubstr("UDP port 29599"));
  EXPECT_THAT(findings[0].cure, HasSubstr("iifname \"c1\" udp dport 29599 accept"));
}

TEST(CheckCalls, IgnoreInterfacesThatAHostLacks) {
  const CallResults calls{.heard = {}, .unanswered = {{{0, "c1"}, {1, "c1;reboot"}}}, .deaf = {}};
  EXPECT_THAT(check_calls(two_hosts_with_cables(), calls), IsEmpty());
}

TEST(CheckCalls, NameHostsThatAreDeaf) {
  const auto findings =
      check_calls(two_hosts_with_cables(), {.heard = {}, .unanswered = {}, .deaf = {1}});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].id, "calls-deaf");
  EXPECT_EQ(findings[0].where, "b");
}

TEST(CheckSilence, NamesInterfacesThatHeardNothing) {
  auto hosts = two_hosts_with_cables();
  hosts[1].interfaces[1].carrier = false;
  const auto findings = check_silence(hosts, {.heard = {kFirst}, .unanswered = {}, .deaf = {}});
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].where, "a (c1)");
  EXPECT_THAT(check_silence(hosts, {.heard = {kFirst, kSecond}, .unanswered = {}, .deaf = {}}),
              IsEmpty());
}

TEST(CheckSilence, IgnoresInterfacesThatHeardAnUnansweredCall) {
  const CallResults calls{.heard = {kFirst}, .unanswered = {kSecond}, .deaf = {}};
  EXPECT_THAT(check_silence(two_hosts_with_cables(), calls), IsEmpty());
}

TEST(CheckSilence, IgnoresInterfacesThatLeadToTheLocalMachine) {
  auto hosts = two_hosts_with_cables();
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].asked_at = fmt::format("10.80.{}.1", i);
    hosts[i].interfaces[1].addresses = {*parse_network(hosts[i].asked_at + "/24")};
  }
  const CallResults calls{.heard = {kFirst}, .unanswered = {}, .deaf = {}};
  EXPECT_THAT(check_silence(hosts, calls), IsEmpty());
  // Hosts in one network should have heard each other there.
  hosts[1].interfaces[1].addresses = {*parse_network("10.80.0.2/24")};
  hosts[1].asked_at = "10.80.0.2";
  const auto findings = check_silence(hosts, calls);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].where, "a (c1), b (c1)");
}

}  // namespace
}  // namespace mccl::cluster
