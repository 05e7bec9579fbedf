#include "base/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "expect_refusal.h"

namespace mccl {
namespace {

using test::refusal;

TEST(Settings, VariableIsPrefixAndUpperCaseName) {
  for (const SettingInfo& info : settings()) {
    std::string expected = "MCCL_";
    for (const char c : info.name) expected += static_cast<char>(std::toupper(c));
    EXPECT_EQ(info.variable, expected);
  }
}

TEST(Settings, NamesAreUniqueAndEveryRowIsComplete) {
  std::set<std::string_view> names;
  for (const SettingInfo& info : settings()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.range.empty()) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_TRUE(
        (std::set<std::string_view>{"text", "integer", "number", "bytes", "boolean", "choice"})
            .contains(info.type))
        << info.type;
  }
}

// The settings and defaults that the earlier MCCL documented.
TEST(Settings, KeepTheEarlierNamesAndDefaults) {
  const std::map<std::string, std::string> documented = {
      {"transport", "auto"},      {"log_level", "WARN"},
      {"listen_addr", ""},        {"link_profile", ""},
      {"port_base", "29600"},     {"ifname", ""},
      {"chunk_bytes", "4194304"}, {"small_msg_threshold", "65536"},
      {"transport_crc", "false"}, {"fast_math", "true"},
      {"gpu_threshold", "4096"},  {"compression", "none"},
      {"topk_ratio", "0.01"},     {"shader_path", ""},
  };
  for (const auto& [name, default_value] : documented) {
    EXPECT_EQ(find_setting(name).info.default_value, default_value) << name;
    EXPECT_EQ(Config{}.get(name), default_value) << name;
  }
}

TEST(Settings, EveryFieldOfConfigHasARow) {
  Config config;
  std::set<const void*> fields;
  for (const Setting& setting : setting_table())
    std::visit([&](auto field) { fields.insert(&(config.*field)); }, setting.field);
  EXPECT_EQ(fields.size(), settings().size());
  // Compiles only if Config has this number of fields; all but the last three are settings.
  const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
               f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36,
               f37, f38, f39, f40, f41, f42, f43, f44, f45, f46, f47, f48, f49, f50, f51, f52, f53,
               f54, f55, f56, f57, f58, f59, port, given_1, given_2] = config;
  EXPECT_EQ(&port, &config.master_port);
  EXPECT_EQ(settings().size(), 59u);
}

TEST(Settings, DistinguishesAnExplicitDefault) {
  for (const Setting& setting : setting_table()) {
    if (!setting.given) continue;
    const std::string name{setting.info.name};
    Config config;
    EXPECT_FALSE((config.*setting.given).yes) << name;
    config.set(name, setting.info.default_value);
    EXPECT_TRUE((config.*setting.given).yes) << name;
    EXPECT_EQ(config, Config{}) << name;
    const std::map<std::string, std::string> environment{
        {std::string(setting.info.variable), setting.info.default_value}};
    EXPECT_TRUE((Config::from_environment(environment).*setting.given).yes) << name;
    EXPECT_FALSE((Config::from_environment({}).*setting.given).yes) << name;
  }
}

TEST(Settings, SettingsThatChangeDataOrResultsMustAgree) {
  std::set<std::string_view> agreeing;
  for (const SettingInfo& info : settings())
    if (info.must_agree) agreeing.insert(info.name);
  EXPECT_EQ(agreeing,
            (std::set<std::string_view>{
                "chunk_bytes", "small_msg_threshold", "cross_memory", "transport_crc", "algorithm",
                "compression", "topk_ratio", "compression_min_bytes", "calibrate", "encryption",
                "link_latency_us", "link_gbit", "liveness_interval", "link_retry", "rdma_ring",
                "reduce_on", "rdma_uncabled", "test_only_shared_gpu"}));
}

TEST(FindSetting, AcceptsNameAndVariable) {
  EXPECT_EQ(&find_setting("port_base"), &find_setting("MCCL_PORT_BASE"));
}

TEST(FindSetting, NamesTheNearestForEveryDroppedLetter) {
  for (const SettingInfo& info : settings()) {
    if (info.name.size() < 5) continue;
    for (std::size_t i = 0; i < info.name.size(); ++i) {
      std::string misspelt{info.name};
      misspelt.erase(i, 1);
      const std::string message = refusal([&] { find_setting(misspelt); });
      EXPECT_NE(message.find("did you mean " + std::string(info.name) + "?"), std::string::npos)
          << message;
    }
  }
}

TEST(FindSetting, ExplainsTheVariableOfTheFile) {
  EXPECT_NE(refusal([] { find_setting("MCCL_CONFIG"); }).find("file"), std::string::npos);
  EXPECT_NE(refusal([] { find_setting("MCCL_MLX"); }).find("mccl.mlx.install()"),
            std::string::npos);
}

}  // namespace
}  // namespace mccl
