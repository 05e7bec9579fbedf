#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "support/folder.h"
#include "transport/tcp/interfaces.h"

namespace mccl::transport::tcp {
namespace {

using Kind = Medium::Kind;

TEST(Medium, IsDescribedInWords) {
  EXPECT_EQ((Medium{Kind::cable, 10'000, 1500}.text()), "10 Gbit/s MTU 1500");
  EXPECT_EQ((Medium{Kind::cable, 2500, 9000}.text()), "2.5 Gbit/s MTU 9000");
  EXPECT_EQ((Medium{Kind::wireless, 866, 1500}.text()), "wireless 866 Mbit/s MTU 1500");
  EXPECT_EQ((Medium{Kind::software, 0, 1500}.text()), "MTU 1500");
  EXPECT_EQ(Medium{}.text(), "");
}

TEST(Medium, PrefersCablesAndThenSpeed) {
  std::vector<Medium> media = {{Kind::software, 0, 0},
                               {Kind::wireless, 2400, 0},
                               {Kind::cable, 0, 0},
                               {Kind::cable, 1000, 0},
                               {Kind::cable, 10'000, 0}};
  std::vector<Medium> expected(media.rbegin(), media.rend());
  std::sort(media.begin(), media.end(), is_better);
  EXPECT_EQ(media, expected);
  EXPECT_FALSE(is_better(media[0], media[0]));
}

TEST(Medium, IsKnownForEveryInterfaceOfThisHost) {
  for (const InterfaceAddress& each : list_interfaces()) EXPECT_GT(each.medium.mtu, 0) << each.name;
}

#ifdef __linux__

/// Simulates the files in which Linux describes its interfaces.
class System {
 public:
  System& file(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(root_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
    return *this;
  }
  System& folder(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(root_.path()) / name);
    return *this;
  }
  System& link(const std::string& name, const std::string& to) {
    std::filesystem::create_directory_symlink(std::filesystem::path(root_.path()) / to,
                                              std::filesystem::path(root_.path()) / name);
    return *this;
  }
  Medium operator[](const std::string& name) const { return medium_of(name, root_.path()); }

 private:
  mccl::testing::Folder root_;
};

TEST(MediumOfLinux, RecognisesACardByItsDevice) {
  System system;
  system.folder("eth0/device").file("eth0/speed", "10000");
  EXPECT_EQ(system["eth0"], (Medium{Kind::cable, 10'000, 0}));
  system.file("eth0/speed", "-1");
  EXPECT_EQ(system["eth0"], (Medium{Kind::cable, 0, 0}));
}

TEST(MediumOfLinux, RecognisesWifiByItsFolders) {
  System system;
  system.folder("wlan0/device").folder("wlan0/wireless");
  EXPECT_EQ(system["wlan0"], (Medium{Kind::wireless, 0, 0}));
  system.folder("wlan1/device").folder("wlan1/phy80211");
  EXPECT_EQ(system["wlan1"].kind, Kind::wireless);
}

TEST(MediumOfLinux, IgnoresTheSpeedOfVirtualInterfaces) {
  System system;
  system.file("docker0/speed", "10000").file("veth1/speed", "10000");
  system.link("docker0/lower_veth1", "veth1");
  EXPECT_EQ(system["docker0"], (Medium{Kind::software, 0, 0}));
  EXPECT_EQ(system["nosuch0"], (Medium{Kind::software, 0, 0}));
}

TEST(MediumOfLinux, ABondOrABridgeOfCablesIsACable) {
  System system;
  system.folder("eth0/device").file("bond0/speed", "20000").link("bond0/lower_eth0", "eth0");
  system.file("bond0.7/speed", "20000").link("bond0.7/lower_bond0", "bond0");
  EXPECT_EQ(system["bond0.7"], (Medium{Kind::cable, 20'000, 0}));
  system.file("loop/speed", "1").link("loop/lower_loop", "loop");
  EXPECT_EQ(system["loop"].kind, Kind::software);
}

TEST(MediumOfLinux, ReadsTheSpeedOfAThunderboltPort) {
  System system;
  system.folder("ports/0-1/0-1.0").file("ports/0-1/rx_speed", "20.0 Gb/s");
  system.file("ports/0-1/rx_lanes", "2");
  system.folder("thunderbolt0").link("thunderbolt0/device", "ports/0-1/0-1.0");
  EXPECT_EQ(system["thunderbolt0"], (Medium{Kind::cable, 40'000, 0}));
}

#endif

}  // namespace
}  // namespace mccl::transport::tcp
