#include "cluster/read_facts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/checks.h"
#include "cluster/finding.h"
#include "cluster/text.h"

namespace mccl::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using nlohmann::json;

HostFacts facts_of(const std::string& text) { return read_facts("h", json::parse(text)); }

/// Reads the output of a Mac's programs.
HostFacts mac_of(const Outputs& outputs) {
  HostFacts facts;
  facts.host = "h";
  facts.system = System::macos;
  read_mac_network(facts, outputs);
  return facts;
}

TEST(ReadFacts, SurviveWritingAndReading) {
  HostFacts facts;
  facts.host = "h";
  facts.system = System::gnu_linux;
  facts.os = "Debian";
  facts.boot = "b";
  facts.cores = 8;
  facts.most_open_files = kNoLimit;
  facts.locked_kib = 64;
  facts.is_root = true;
  facts.versions = {{"mccl", "0.1.0"}, {"torch", "2.11.0+cu128"}};
  facts.settings = {{"MCCL_TIMEOUT", "5"}};
  facts.routes = {{*parse_network("10.9.0.0/16"), "eth0"}};
  Interface& interface = facts.interfaces.emplace_back();
  interface.name = "eth0";
  interface.kind = InterfaceKind::thunderbolt;
  interface.up = true;
  interface.carrier = false;
  interface.mbit_per_s = 25'000;
  interface.addresses = {*parse_network("10.0.0.1/24"), *parse_network("fd00:1::2/64")};
  interface.link_local = {"fe80::1"};
  interface.rp_filter = 1;
  facts.ports = {{"1", "eth0", "own", "peer", "desk", 40'000, true}};
  facts.rdma = {{"mlx5_0", "eth0", "ACTIVE", 100'000, {"fe80::1"}}};
  facts.gpus = {{"H100", 81'559, "570.1"}};
  facts.gpu_links = "\tGPU0\n";
  note_odd(facts, "ifconfig", "an address", "nothing");
  const HostFacts read = read_facts("h", json_of(facts));
  EXPECT_EQ(json_of(read), json_of(facts));
  EXPECT_EQ(read.odd, facts.odd);
  EXPECT_EQ(read.interface("eth0")->addresses, interface.addresses);
}

TEST(ReadFacts, OmitMissingValues) {
  const HostFacts facts = facts_of(R"({"system": "Linux"})");
  EXPECT_THAT(facts.odd, IsEmpty());
  EXPECT_FALSE(facts.locked_kib.has_value());
  EXPECT_THAT(facts.interfaces, IsEmpty());
}

TEST(ReadFacts, NoteUnexpectedValues) {
  for (const char* text :
       {"[]", "3", "null", R"({"system": "Linux", "cores": "many"})",
        R"({"system": "Linux", "interfaces": {}})", R"({"system": "Linux", "versions": [1]})",
        R"({"system": "Linux", "interfaces": [{"name": 3}]})", R"({"system": "Plan 9"})"}) {
    const HostFacts facts = facts_of(text);
    ASSERT_FALSE(facts.odd.empty()) << text;
    EXPECT_THAT(facts.odd[0].what, HasSubstr("the output of mccl probe is not understood")) << text;
    EXPECT_EQ(facts.odd[0].where, "h");
  }
}

TEST(ReadFacts, OmitNamesWithShellCharacters) {
  const HostFacts facts = facts_of(R"json({"system": "Linux",
    "versions": {"torch": "2.11.0+cu128", "mlx": "$(reboot)", "mccl": "1;reboot"},
    "interfaces": [{"name": "$(reboot)"}, {"name": "-rf"}, {"name": "eth0", "bridge": "br`x`"}],
    "rdma": [{"name": "mlx;x", "interface": "eth0"}]
})json");
  ASSERT_EQ(facts.interfaces.size(), 1U);
  EXPECT_EQ(facts.interfaces[0].name, "eth0");
  EXPECT_EQ(facts.interfaces[0].bridge, "");
  EXPECT_THAT(facts.rdma, IsEmpty());
  EXPECT_EQ(facts.versions.at("torch"), "2.11.0+cu128");
  EXPECT_EQ(facts.versions.at("mlx"), "");
  EXPECT_EQ(facts.odd.size(), 6U) << json_of(facts)["odd"];
}

TEST(ReadFacts, BoundHugeAnswers) {
  json said = {{"system", "Linux"}};
  for (int i = 0; i < 10'001; ++i) {
    said["interfaces"].push_back({{"name", fmt::format("e{}", i)}});
    said["settings"][fmt::format("MCCL_{}", i)] = "x";
  }
  const HostFacts facts = read_facts("h", said);
  EXPECT_EQ(facts.interfaces.size(), 0U);
  EXPECT_LE(facts.settings.size(), 256U);
  EXPECT_LE(facts.odd.size(), 16U);
  EXPECT_GE(facts.odd.size(), 2U);
}

/// Any input from a host must yield facts and no crash.
TEST(ReadFacts, SurviveArbitraryText) {
  std::mt19937 random(1);
  const json whole = json_of(facts_of(R"({"system": "Linux", "interfaces": [{"name": "eth0"}],
    "ports": [{}], "gpus": [{}], "rdma": [{"name": "m"}], "routes": [{"to": "10.0.0.0/8"}]})"));
  const std::vector<json> odd = {nullptr,
                                 true,
                                 -1,
                                 1e300,
                                 "x",
                                 json::array({1, "a", nullptr}),
                                 {{"name", "e0"}, {"addresses", {1, "10.0.0.1/99"}}}};
  for (int round = 0; round < 2000; ++round) {
    json said = whole;
    for (auto& [key, value] : said.items())
      if (random() % 4 == 0)
        value = random() % 2 == 0 ? odd[random() % odd.size()]
                                  : json::array({odd[random() % odd.size()]});
    const HostFacts facts = read_facts("h", said);
    EXPECT_FALSE(facts.host.empty());
    check_machine(facts);
  }
}

TEST(ReadFacts, KeepOnlyThePresenceOfKeys) {
  HostFacts facts;
  keep_variable(facts, "MCCL_JOB_KEY", "secret");
  keep_variable(facts, "MCCL_TIMEOUT", "5");
  keep_variable(facts, "HOME", "/root");
  EXPECT_THAT(facts.settings,
              ElementsAre(std::pair{"MCCL_JOB_KEY", "(set)"}, std::pair{"MCCL_TIMEOUT", "5"}));
}

TEST(ReadGpus, OfNvidiaSmi) {
  HostFacts facts;
  read_gpus(facts, "NVIDIA H100 80GB HBM3, 81559, 570.1\n");
  ASSERT_EQ(facts.gpus.size(), 1U);
  EXPECT_EQ(facts.gpus.front().memory_mib, 81559);
  read_gpus(facts, "NVIDIA-SMI has failed");
  EXPECT_EQ(facts.odd.size(), 1U);
}

TEST(ReadVersions, OfPackages) {
  HostFacts facts;
  read_versions(facts, "python 3.11.2\ntorch 2.11.0\nnonsense\nmlx $(reboot)\n");
  EXPECT_EQ(facts.versions.at("torch"), "2.11.0");
  EXPECT_EQ(facts.versions.size(), 3U);
  EXPECT_EQ(facts.odd.size(), 1U);
}

TEST(ReadMac, KeepsPermanentIpv6Addresses) {
  const HostFacts mac = mac_of({{"ifconfig",
                                 "en0: flags=8863<UP> mtu 1500\n"
                                 "\tinet6 fe80::10%en0 prefixlen 64 secured scopeid 0x4\n"
                                 "\tinet6 fd00:1::9 prefixlen 64 autoconf secured\n"
                                 "\tinet6 fd00:1::a prefixlen 64 autoconf temporary\n"
                                 "\tinet6 fd00:1::b prefixlen\n"}});
  ASSERT_EQ(mac.interface("en0")->addresses.size(), 1U);
  EXPECT_EQ(text_of(mac.interface("en0")->addresses[0]), "fd00:1::9/64");
  EXPECT_THAT(mac.interface("en0")->link_local, ElementsAre("fe80::10"));
}

/// The other Mac is behind a Thunderbolt 3 hub and a dock.
TEST(ReadMac, FindsDevicesBehindHubs) {
  const HostFacts facts = mac_of({{"ifconfig", "en2: flags=8863<UP> mtu 1500\n"},
                                  {"networksetup", "Hardware Port: Thunderbolt 1\nDevice: en2\n"},
                                  {"system_profiler", R"({"SPThunderboltDataType": [
    {"domain_uuid_key": "A", "receptacle_1_tag": {"receptacle_id_key": "1",
     "current_speed_key": "20 Gb/s"}, "_items": [
       {"_name": "hub", "_items": [{"_name": "disk"}, {"_name": "dock", "_items": [
         {"_name": "Mac mini", "device_name_key": "Mac14,3", "domain_uuid_key": "B"}]}]}]}]})"}});
  ASSERT_EQ(facts.ports.size(), 1U);
  EXPECT_EQ(facts.ports[0].peer_id, "b");
  EXPECT_EQ(facts.ports[0].interface, "en2");
  EXPECT_EQ(facts.ports[0].mbit_per_s, 20'000);
  EXPECT_TRUE(facts.ports[0].through_dock);
}

TEST(ReadMac, LeavesOutInterfacesWithOddNames) {
  const HostFacts facts =
      mac_of({{"ifconfig",
               "en0: flags=8863<UP> mtu 1500\n\tinet 10.0.0.1 netmask 0xffffff00\n"
               "e;n1: flags=8863<UP> mtu 1500\n\tinet 10.0.0.2 netmask 0xffffff00\n"}});
  ASSERT_EQ(facts.interfaces.size(), 1U);
  EXPECT_EQ(facts.interfaces[0].addresses.size(), 1U);
}

TEST(ReadMac, ReadsRoutesWithTheirInterfaces) {
  const HostFacts facts =
      mac_of({{"ifconfig", "en0: flags=8863<UP> mtu 1500\n"},
              {"netstat", "default 10.0.0.9 UGScg en0\n10.1/24 link#1 UCS en0\n"}});
  ASSERT_EQ(facts.routes.size(), 1U);
  EXPECT_EQ(text_of(facts.routes[0].to), "10.1.0.0/24");
  EXPECT_EQ(facts.routes[0].interface, "en0");
}

TEST(ReadMac, ReadsTheSpeedOfEthernet) {
  const auto speed = [](const std::string& media) {
    return mac_of({{"ifconfig", "en0: flags=8863<UP> mtu 1500\n\tmedia: " + media + "\n"}})
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

TEST(ReadMac, SurvivesArbitraryText) {
  std::mt19937 random(1);
  const std::string letters = "{}[]|:/.,\"\\ \n\tinet0123456789abcdefxU<>=-e\xff";
  for (int round = 0; round < 2000; ++round) {
    Outputs outputs;
    for (const char* name :
         {"ifconfig", "netstat", "system_profiler", "networksetup", "ibv_devices", "rdma_ctl"}) {
      std::string text(random() % 80, ' ');
      for (char& c : text) c = letters[random() % letters.size()];
      outputs[name] = text;
    }
    check_machine(mac_of(outputs));
  }
}

TEST(CheckMachine, FindsSmallLimits) {
  HostFacts facts = facts_of(R"({"system": "Linux", "locked_kib": 64, "shared_kib": 1000000})");
  EXPECT_THAT(check_machine(facts), IsEmpty());
  facts.rdma.emplace_back().name = "mlx5_0";
  facts.most_open_files = 256;
  const auto findings = check_machine(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("256 files"));
  EXPECT_THAT(findings[1].what, HasSubstr("lock 64 KiB"));
}

TEST(CheckMachine, ReportsParkedAndBusyCores) {
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
  EXPECT_EQ(findings[1].fix, "");  // untested on Macs, so doctor does not run it
}

TEST(CheckSettings, FindsWhatMcclRefuses) {
  HostFacts facts;
  facts.settings = {{"MCCL_TRANSPORTS", "tcp"}, {"MCCL_IFNAME", "eth9"}, {"MCCL_TIMEOUT", "5"}};
  const auto findings = check_settings(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].what, HasSubstr("MCCL_TRANSPORT"));
  EXPECT_THAT(findings[1].what, HasSubstr("eth9"));
}

TEST(Table, LinesUp) {
  EXPECT_EQ(table_text({{"host", "cores", "what"}, {"\xc3\xa9", "8", "x"}, {"long", "16", "-"}}),
            "host  cores  what\n\xc3\xa9         8  x\nlong     16  -\n");
}

std::vector<std::string> in_use(const HostFacts& facts) {
  std::vector<std::string> texts;
  for (const InUse& each : facts.in_use) texts.push_back(text_of(each.network) + " " + each.by);
  return texts;
}

TEST(NoteInUse, FindsPrivateAddressesInTexts) {
  HostFacts facts;
  note_in_use(facts, "10.0.0.5         0x1  0x2  aa:bb:cc:dd:ee:ff  *  eth0\n", "a neighbour");
  note_in_use(facts, "? (10.0.0.6) at 1:2:3:4:5:6 on en0\nnameserver[0] : 192.168.9.1\n", "x");
  note_in_use(facts, "tcp4 0 0  172.16.0.9.22   172.16.0.8.50123 ESTABLISHED", "a TCP peer");
  note_in_use(facts, "10.9.0.0/16 dev wg0 src 10.9.0.7 8.8.8.8 1.2.3 10.0.0.5. ...", "in a route");
  note_in_use(facts, "vers=4.2,addr=10.0.0.7,255.255.255.0 10.256.0.1 10.0.0.1/33",
              "a file server");
  EXPECT_THAT(in_use(facts), ElementsAre("10.0.0.5/32 a neighbour", "10.0.0.6/32 x",
                                         "192.168.9.1/32 x", "172.16.0.9/32 a TCP peer",
                                         "172.16.0.8/32 a TCP peer", "10.9.0.0/16 in a route",
                                         "10.9.0.7/32 in a route", "10.0.0.7/32 a file server"));
}

TEST(NoteTcpPeers, ReadsLinuxsTables) {
  HostFacts facts;
  // 10.0.0.9 is established, 10.0.0.8 is listening, and 10.0.0.7 uses an IPv6 socket.
  note_tcp_peers(facts,
                 "  sl  local_address rem_address   st\n"
                 "   0: 0100007F:0016 0900000A:D431 01 00000000:00000000\n"
                 "   1: 0100007F:0016 0800000A:0000 0A 00000000:00000000\n"
                 "   2: 0000000000000000FFFF00000100000A:0016 "
                 "0000000000000000FFFF00000700000A:D431 01 0\n"
                 "   3: short\n   4: x y:z zzzzzzzz:1 01\n");
  EXPECT_THAT(in_use(facts), ElementsAre("10.0.0.9/32 a TCP peer", "10.0.0.7/32 a TCP peer"));
}

}  // namespace
}  // namespace mccl::cluster
