#include <gtest/gtest.h>

#include "base/settings.h"

namespace mccl {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(LinkProfile, SetsTheBuffersOfSockets) {
  Config config;
  EXPECT_EQ(socket_buffer_bytes_of(config), 0u);
  config.link_profile = "ethernet";
  EXPECT_EQ(socket_buffer_bytes_of(config), 0u);
  config.link_profile = "thunderbolt";
  EXPECT_EQ(socket_buffer_bytes_of(config), 4 * kMiB);
  config.socket_buffer_bytes = 12345;
  EXPECT_EQ(socket_buffer_bytes_of(config), 12345u);
}

TEST(LinkProfile, SetsTheLargestMessage) {
  Config config;
  EXPECT_EQ(chunk_bytes_of(config), 4 * kMiB);
  config.set("link_profile", "ethernet");
  EXPECT_EQ(chunk_bytes_of(config), 4 * kMiB);
  config.set("link_profile", "thunderbolt");
  EXPECT_EQ(chunk_bytes_of(config), 8 * kMiB);
}

TEST(LinkProfile, KeepsAnExplicitMessageSize) {
  Config config;
  config.set("link_profile", "thunderbolt");
  config.set("chunk_bytes", "4M");
  EXPECT_EQ(chunk_bytes_of(config), 4 * kMiB) << "the default, and given";
  Config of_program;
  of_program.link_profile = "thunderbolt";
  of_program.chunk_bytes = kMiB;
  EXPECT_EQ(chunk_bytes_of(of_program), kMiB);
}

}  // namespace
}  // namespace mccl
