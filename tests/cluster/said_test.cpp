#include "cluster/said.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/finding.h"
#include "cluster/machine_check.h"
#include "cluster/read_facts.h"
#include "cluster/table.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostFacts facts_of(std::map<std::string, std::string> sections) {
  return read_facts("h", Said::of(std::move(sections)));
}

constexpr const char* kLinuxMachine =
    "system Linux\nkernel 6.1\nuid 0\nfiles 1024\nmost_files unlimited\nlocked 64\ncores 8\n"
    "memory_kib 16777216\nshared_kib 1000000\nshared yes\nmccl /usr/bin/mccl\n"
    "mccl_version mccl 0.1.0\n";

TEST(Said, IsCutIntoSections) {
  Said said("T");
  for (const char* line : {"chatter", "T begin a", "one", "two\r", "T end a", "chatter", "T done"})
    said.hear(line);
  EXPECT_EQ(*said.section("a"), "one\ntwo\n");
  EXPECT_EQ(said.section("b"), nullptr);
  EXPECT_EQ(said.hear("T done"), "done");
  EXPECT_EQ(said.hear("Tdone"), "");
}

TEST(Said, KnowsWhatWasNotFinished) {
  Said said("T");
  said.hear("T begin slow");
  EXPECT_EQ(said.unfinished(), "slow");
}

TEST(Said, KeepsOnlyWholeCharacters) {
  Said said("T");
  said.hear("T begin a");
  said.hear("\xff\xc3\xa9\xe2\x82");
  EXPECT_EQ(*said.section("a"), "?\xc3\xa9??\n");
}

TEST(Said, HasAnEnd) {
  Said said("T");
  said.hear("T begin a");
  const std::string line(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) said.hear(line);
  EXPECT_TRUE(said.too_much());
  EXPECT_LE(said.section("a")->size(), kMostSaid + line.size());
}

TEST(ReadFacts, OfALinuxMachine) {
  const HostFacts facts = facts_of(
      {{"machine", kLinuxMachine},
       {"versions", "python 3.11.2\ntorch 2.11.0\nnonsense\n"},
       {"variables", "MCCL_TIMEOUT=5\nHOME=/root\n"},
       {"net",
        "lo|unknown|1||65536|00:00:00:00:00:00|no|no|||0x9\n"
        "eth0|up|1|25000|9000|52:54:00:00:00:01|no|yes|mlx5_core||0x1003\n"
        "wlan0|up|1||1500|52:54:00:00:00:02|yes|yes|iwlwifi||0x1003\n"
        "thunderbolt0|up|0||1500|02:00:00:00:00:03|no|yes|thunderbolt-net||0x1003\n"
        "docker0|down|0||1500|02:42:00:00:00:04|no|joins|||0x1003\n"},
       {"address",
        "1: lo    inet 127.0.0.1/8 scope host lo\n"
        "2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0\n"
        "2: eth0    inet6 fe80::1/64 scope link\n"},
       {"route",
        "default via 10.0.0.254 dev eth0\n10.0.0.0/24 dev eth0\nunreachable 10.9.0.0/16\n"},
       {"rdma", "device|mlx5_0|eth0|4: ACTIVE|25 Gb/sec (1X EDR)\ngid|mlx5_0|fe80::1\n"},
       {"thunderbolt", "thunderbolt0|own|peer|desk|20.0 Gb/s|2\n"},
       {"gpu", "NVIDIA H100 80GB HBM3, 81559, 570.1\n"}});
  EXPECT_THAT(facts.odd, IsEmpty());
  EXPECT_EQ(facts.cores, 8);
  EXPECT_EQ(facts.most_open_files, kNoLimit);
  EXPECT_EQ(facts.versions.at("mccl"), "0.1.0");
  EXPECT_EQ(facts.versions.at("torch"), "2.11.0");
  EXPECT_THAT(facts.variables, ElementsAre(std::pair{"MCCL_TIMEOUT", "5"}));
  ASSERT_EQ(facts.interfaces.size(), 5U);
  EXPECT_EQ(facts.interface("eth0")->mbit_per_s, 25000);
  EXPECT_EQ(facts.interface("eth0")->rdma, "mlx5_0");
  EXPECT_EQ(facts.interface("wlan0")->medium, Medium::wireless);
  EXPECT_EQ(facts.interface("thunderbolt0")->medium, Medium::thunderbolt);
  EXPECT_EQ(facts.interface("thunderbolt0")->mbit_per_s, 40000);
  EXPECT_FALSE(facts.interface("thunderbolt0")->usable());
  EXPECT_TRUE(facts.interface("docker0")->joins);
  ASSERT_EQ(facts.routes.size(), 2U);
  EXPECT_EQ(text_of(facts.routes[1]), "10.9.0.0/16");
  EXPECT_EQ(facts.gpus.front().memory_mib, 81559);
  EXPECT_EQ(facts.ports.front().peer_name, "desk");
}

TEST(ReadFacts, OfIpv6TakesAddressesThatLast) {
  const HostFacts linux_machine = facts_of(
      {{"machine", kLinuxMachine},
       {"net", "eth0|up|1|1000|1500|52:54:00:00:00:01|no|yes|||0x1003\n"},
       {"address",
        "2: eth0    inet6 fd00:1::2/64 scope global \\       valid_lft forever\n"
        "2: eth0    inet6 fd00:1::3/64 scope global temporary dynamic \\ valid_lft 100sec\n"
        "2: eth0    inet6 fd00:1::4/64 scope global tentative \\ valid_lft forever\n"
        "2: eth0    inet6 fd00:1::5/64 scope global deprecated dynamic \\ valid_lft 100sec\n"
        "2: eth0    inet6 fe80::1/64 scope link \\ valid_lft forever\n"}});
  ASSERT_EQ(linux_machine.interface("eth0")->addresses6.size(), 1U);
  EXPECT_EQ(text_of(linux_machine.interface("eth0")->addresses6[0]), "fd00:1::2/64");
  EXPECT_THAT(linux_machine.interface("eth0")->link_local, ElementsAre("fe80::1"));
  const HostFacts mac = facts_of({{"machine", "system Darwin\n"},
                                  {"address",
                                   "en0: flags=8863<UP> mtu 1500\n"
                                   "\tinet6 fe80::10%en0 prefixlen 64 secured scopeid 0x4\n"
                                   "\tinet6 fd00:1::9 prefixlen 64 autoconf secured\n"
                                   "\tinet6 fd00:1::a prefixlen 64 autoconf temporary\n"
                                   "\tinet6 fd00:1::b prefixlen\n"}});
  ASSERT_EQ(mac.interface("en0")->addresses6.size(), 1U);
  EXPECT_EQ(text_of(mac.interface("en0")->addresses6[0]), "fd00:1::9/64");
  EXPECT_THAT(mac.interface("en0")->link_local, ElementsAre("fe80::10"));
}

/// Behind a hub, and a dock behind that; of Thunderbolt 3.
TEST(ReadFacts, OfAMacLookBehindHubs) {
  const HostFacts facts = facts_of({{"machine", "system Darwin\n"},
                                    {"address", "en2: flags=8863<UP> mtu 1500\n"},
                                    {"ports", "Hardware Port: Thunderbolt 1\nDevice: en2\n"},
                                    {"thunderbolt", R"({"SPThunderboltDataType": [
    {"domain_uuid_key": "A", "receptacle_1_tag": {"receptacle_id_key": "1",
     "current_speed_key": "20 Gb/s"}, "_items": [
       {"_name": "hub", "_items": [{"_name": "disk"}, {"_name": "dock", "_items": [
         {"_name": "Mac mini", "device_name_key": "Mac14,3", "domain_uuid_key": "B"}]}]}]}]})"}});
  ASSERT_EQ(facts.ports.size(), 1U);
  EXPECT_EQ(facts.ports[0].peer, "b");
  EXPECT_EQ(facts.ports[0].interface, "en2");
  EXPECT_EQ(facts.ports[0].mbit_per_s, 20'000);
  EXPECT_TRUE(facts.ports[0].through_dock);
}

TEST(ReadFacts, NoteWhatIsOdd) {
  const HostFacts facts = facts_of({{"machine", kLinuxMachine}, {"net", "one|two\n"}});
  ASSERT_EQ(facts.odd.size(), 2U);
  EXPECT_THAT(facts.odd[0].what, HasSubstr("one|two"));
  EXPECT_EQ(facts_of({}).odd.size(), 1U);
}

TEST(ReadFacts, LeaveOutNamesThatAShellWouldRun) {
  const HostFacts facts =
      facts_of({{"machine", std::string(kLinuxMachine) + "mccl_version mccl 1;reboot\n"},
                {"versions", "torch 2.11.0+cu128\nmlx $(reboot)\n"},
                {"net",
                 "$(reboot)|up|1|1000|1500|52:54:00:00:00:01|no|yes|||0x1003\n"
                 "-rf|up|1|1000|1500|52:54:00:00:00:02|no|yes|||0x1003\n"
                 "eth0|up|1|1000|1500|52:54:00:00:00:03|no|yes||br`x`|0x1003\n"},
                {"rdma", "device|mlx;x|eth0|4: ACTIVE|25 Gb/sec (1X EDR)\n"}});
  ASSERT_EQ(facts.interfaces.size(), 1U);
  EXPECT_EQ(facts.interfaces[0].name, "eth0");
  EXPECT_EQ(facts.interfaces[0].bridge, "");
  EXPECT_THAT(facts.rdma, IsEmpty());
  EXPECT_EQ(facts.versions.at("torch"), "2.11.0+cu128");
  EXPECT_EQ(facts.versions.at("mlx"), "");
  EXPECT_EQ(facts.odd.size(), 6U);
}

TEST(ReadFacts, OfAMacLeaveOutInterfacesWithOddNames) {
  const HostFacts facts =
      facts_of({{"machine", "system Darwin\n"},
                {"address",
                 "en0: flags=8863<UP> mtu 1500\n\tinet 10.0.0.1 netmask 0xffffff00\n"
                 "e;n1: flags=8863<UP> mtu 1500\n\tinet 10.0.0.2 netmask 0xffffff00\n"}});
  ASSERT_EQ(facts.interfaces.size(), 1U);
  EXPECT_EQ(facts.interfaces[0].addresses.size(), 1U);
}

TEST(ReadFacts, OfAMacTellTheSpeedOfEthernet) {
  const auto speed = [](const std::string& media) {
    return facts_of({{"machine", "system Darwin\n"},
                     {"address", "en0: flags=8863<UP> mtu 1500\n\tmedia: " + media + "\n"}})
        .interfaces.at(0)
        .mbit_per_s;
  };
  EXPECT_EQ(speed("autoselect (10Gbase-T <full-duplex>)"), 10'000);
  EXPECT_EQ(speed("autoselect (1000baseT <full-duplex,flow-control>)"), 1000);
  EXPECT_EQ(speed("autoselect (2500Base-T <full-duplex>)"), 2500);
  for (const char* odd :
       {"autoselect", "autoselect (none)", "(", "(G", "(99999999999999999999Gbase"})
    EXPECT_EQ(speed(odd), 0) << odd;
}

TEST(ReadFacts, OfHugeOutputEnd) {
  std::string net;
  std::string variables;
  for (int i = 0; i < 50'000; ++i) {
    net += "e" + std::to_string(i) + "|up|1||1500|02:00:00:00:00:01|no|yes|||0x1\n";
    variables += "MCCL_" + std::to_string(i) + "=x\n";
  }
  const HostFacts facts =
      facts_of({{"machine", kLinuxMachine}, {"net", net}, {"variables", variables}});
  EXPECT_LE(facts.interfaces.size(), 4096U);
  EXPECT_LE(facts.variables.size(), 256U);
  EXPECT_EQ(facts.odd.size(), 2U);
}

/// Whatever a host says, there is an answer.
TEST(ReadFacts, SurviveAnything) {
  std::mt19937 random(1);
  const std::string letters = "{}[]|:/.,\"\\ \n\tinet0123456789abcdefxU<>=-e\xff";
  const std::vector<std::string> names = {"machine", "net",   "address",  "route",      "rdma",
                                          "gpu",     "ports", "versions", "thunderbolt"};
  for (int round = 0; round < 2000; ++round) {
    std::map<std::string, std::string> sections;
    for (const std::string& name : names) {
      std::string text(random() % 80, ' ');
      for (char& c : text) c = letters[random() % letters.size()];
      sections[name] = text;
    }
    sections["machine"] = random() % 2 == 0 ? "system Linux\n" : "system Darwin\n";
    const HostFacts facts = facts_of(sections);
    EXPECT_FALSE(facts.host.empty());
    check_machine(facts);
  }
}

TEST(CheckMachine, FindsSmallLimits) {
  HostFacts facts = facts_of({{"machine", kLinuxMachine}, {"net", "lo|||||||||||\n"}});
  facts.odd.clear();
  EXPECT_THAT(check_machine(facts), IsEmpty());
  facts.rdma.emplace_back().name = "mlx5_0";
  facts.most_open_files = 256;
  const auto findings = check_machine(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("256 files"));
  EXPECT_THAT(findings[1].what, HasSubstr("lock 64 KiB"));
}

TEST(CheckMachine, TellsOfCoresThatSleepAndAreBusy) {
  HostFacts facts;
  facts.host = "h";
  facts.cores = 8;
  facts.governor = "powersave";
  facts.mhz = 800;
  facts.most_mhz = 4000;
  facts.load = 13;
  const auto findings = check_machine(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("800 of 4000 MHz"));
  EXPECT_THAT(findings[1].what, HasSubstr("load is 13.0 on 8 cores"));
}

TEST(CheckMachine, NamesCuresOfMacos) {
  HostFacts facts;
  facts.system = System::macos;
  facts.most_open_files = 256;
  Interface& cable = facts.interfaces.emplace_back();
  cable.name = "en2";
  cable.up = true;
  cable.mtu = 1000;
  cable.addresses = {*parse_network("10.0.0.1/24")};
  const auto findings = check_machine(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].cure, HasSubstr("launchctl"));
  EXPECT_EQ(findings[1].cure, "sudo ifconfig en2 mtu 1500");
  EXPECT_EQ(findings[1].fix, "");  // Nobody has seen it work there.
}

TEST(CheckSettings, FindsWhatMcclRefuses) {
  HostFacts facts;
  facts.variables = {{"MCCL_TRANSPORTS", "tcp"}, {"MCCL_IFNAME", "eth9"}, {"MCCL_TIMEOUT", "5"}};
  const auto findings = check_settings(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("MCCL_TRANSPORT"));
  EXPECT_THAT(findings[1].what, HasSubstr("eth9"));
}

TEST(Table, LinesUp) {
  EXPECT_EQ(table_text({{"host", "cores", "what"}, {"\xc3\xa9", "8", "x"}, {"long", "16", "-"}}),
            "host  cores  what\n\xc3\xa9         8  x\nlong     16  -\n");
}

}  // namespace
}  // namespace mccl::cluster
