#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/settings.h"
#include "expect_refusal.h"
#include "mccl/config.h"
#include "most_of.h"

namespace mccl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ToTable, HasALinePerSettingWithItsVariable) {
  Config config;
  config.set("port_base", "31000");
  const std::string table = to_table(config);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'),
            static_cast<std::ptrdiff_t>(settings().size()));
  for (const SettingInfo& info : settings()) EXPECT_THAT(table, HasSubstr(info.variable));
  EXPECT_THAT(table, HasSubstr("= 31000 (MCCL_PORT_BASE; "));
}

TEST(ToTable, MasksTheJobKey) {
  Config config;
  EXPECT_THAT(to_table(config), HasSubstr("= (not set) (MCCL_JOB_KEY"));
  config.set("job_key", "hush");
  EXPECT_THAT(to_table(config), HasSubstr("= (set) (MCCL_JOB_KEY"));
  EXPECT_THAT(to_table(config), Not(HasSubstr("hush")));
}

TEST(ToTable, AFieldWithNewlinesStaysOneLine) {
  Config config;
  config.ifname = "en0\nforged = line";
  EXPECT_THAT(to_table(config), Not(HasSubstr("\nforged")));
  EXPECT_THAT(agreement_of(config), Not(HasSubstr("forged")));
}

TEST(Agreement, ChangesOnlyWithSettingsThatMustAgree) {
  const Config defaults;
  for (const SettingInfo& info : settings()) {
    Config config;
    const bool is_choice = info.type == "choice" || info.type == "boolean";
    const std::string_view range = info.range;
    const std::string last{range.substr(is_choice ? range.rfind(", ") + 2 : 0)};
    config.set(info.name, info.type == "boolean"    ? (info.default_value == "true" ? "0" : "1")
                          : is_choice               ? last
                          : info.type == "number"   ? "0.5"
                          : info.name == "rdma_gid" ? "ipv6"
                          : info.name == "metrics_addr"
                              ? "::1"
                              : std::to_string(test::most_of(info, 9999)));
    ASSERT_NE(config, defaults) << info.name;
    EXPECT_EQ(agreement_of(config) != agreement_of(defaults), info.must_agree) << info.name;
  }
}

TEST(Agreement, IsNameAndValuePerLine) {
  EXPECT_EQ(
      agreement_of(Config{}),
      "rdma_ring=false\nrdma_uncabled=relay\n"
      "chunk_bytes=4194304\nsmall_msg_threshold=65536\ncross_memory=auto\ntransport_crc=false\n"
      "reduce_on=auto\ntest_only_shared_gpu=no\ncompression=none\ntopk_ratio=0.01\n"
      "compression_min_bytes=65536\nalgorithm=auto\nliveness_interval=10\nlink_retry=-1\n"
      "calibrate=true\nlink_latency_us=0\nlink_gbit=0\nencryption=off\n");
}

TEST(Warnings, NoneForTheDefaults) {
  EXPECT_THAT(warnings_for(Config{}), IsEmpty());
  Config config;
  config.set("transport", "tcp");
  config.set("port_base", "31000");
  EXPECT_THAT(warnings_for(config), IsEmpty());
}

TEST(ChangedSettings, AreThoseThatDifferWithWhereTheyComeFrom) {
  EXPECT_EQ(changed_settings(Config{}, {}), "");
  const std::string file = ::testing::TempDir() + "mccl_changed_settings.json";
  std::ofstream(file) << R"({"timeout": 60, "spin_us": 7})";
  const std::map<std::string, std::string> environment = {
      {"MCCL_CONFIG", file}, {"MCCL_SPIN_US", "9"}, {"MCCL_CHUNK_BYTES", "8M"}};
  Config config = Config::from_environment(environment);
  config.set("transport", "tcp");
  config.set("job_key", "a key that is long enough");
  EXPECT_EQ(changed_settings(config, environment),
            "transport=tcp (program), chunk_bytes=8388608 (MCCL_CHUNK_BYTES), timeout=60 (" + file +
                "), spin_us=9 (MCCL_SPIN_US), job_key=(set) (program)");
  config.set("spin_us", "11");
  EXPECT_THAT(changed_settings(config, environment), HasSubstr("spin_us=11 (program)"));
  std::filesystem::remove(file);
  EXPECT_THAT(changed_settings(config, environment), HasSubstr("timeout=60 (program)"));
}

TEST(ChangedSettings, WarnOfASettingWithoutEffect) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"fast_math", "0"}, {"gpu_threshold", "1"}, {"shader_path", "/x"}}) {
    Config config;
    config.set(name, value);
    EXPECT_THAT(warnings_for(config), IsEmpty());
    EXPECT_THAT(changed_settings(config, {}), ::testing::StartsWith(name + "="));
    EXPECT_THAT(changed_settings(config, {}),
                HasSubstr(" (program; no effect without reduce_on=gpu)"));
    config.set("reduce_on", "gpu");
    EXPECT_THAT(changed_settings(config, {}), Not(HasSubstr("no effect")));
  }
}

TEST(Warnings, OfAGuessableJobKey) {
  Config config;
  config.job_key = "fifteen letters";
  EXPECT_THAT(warnings_for(config), ElementsAre(HasSubstr("openssl rand")));
  EXPECT_THAT(warnings_for(config), ElementsAre(::testing::Not(HasSubstr("fifteen"))));
  config.job_key = "sixteen letters!";
  EXPECT_THAT(warnings_for(config), IsEmpty());
}

TEST(Markdown, HasARowPerSettingAndOneForTheFile) {
  const std::string table = settings_markdown();
  for (const SettingInfo& info : settings()) {
    std::string variable = "MCCL_" + std::string(info.name);
    for (char& c : variable) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(info.variable, variable);
    EXPECT_THAT(table, HasSubstr("| `" + variable + "` | "));
    EXPECT_THAT(table, HasSubstr(info.meaning));
  }
  EXPECT_THAT(table, HasSubstr("MCCL_CONFIG"));
  EXPECT_THAT(table, HasSubstr("MCCL_MLX"));
  std::size_t begin = 0;
  for (std::size_t end; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_EQ(std::count(table.begin() + begin, table.begin() + end, '|'), 5)
        << table.substr(begin, end - begin);
}

}  // namespace
}  // namespace mccl
