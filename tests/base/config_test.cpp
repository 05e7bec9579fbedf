#include "mccl/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "expect_refusal.h"
#include "most_of.h"

namespace mccl {
namespace {

using test::refusal;
using ::testing::HasSubstr;
using ::testing::Not;
using Environment = std::map<std::string, std::string>;

/// Returns a valid value other than the default, in the text form that get() returns.
std::string some_value(const SettingInfo& info, std::mt19937& random) {
  if (info.name == "rdma_gid" || info.name == "metrics_addr")
    return fmt::format("10.9.0.{}", random() % 256);
  if (info.type == "boolean") return random() % 2 ? "true" : "false";
  if (info.type == "integer") return std::to_string(1 + random() % test::most_of(info, 60000));
  if (info.type == "bytes") return std::to_string(4096 + random() % (1u << 28));
  if (info.type == "number") return fmt::format("{}", (1 + random() % 1000) / 1000.0);
  if (info.type == "choice") {
    const std::string range{info.range};
    std::vector<std::string> words;
    for (std::size_t at = 0; at < range.size();) {
      const std::size_t end = std::min(range.find(", ", at), range.size());
      words.push_back(range.substr(at, end - at));
      at = end + 2;
    }
    return words[random() % words.size()];
  }
  std::string text(random() % 40, ' ');
  for (char& c : text) c = static_cast<char>(' ' + random() % 95);
  return text;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("mccl_config_test_" + std::to_string(std::random_device{}()) + ".json")) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Config, EverySettingTakesItsDefaultAsText) {
  for (const SettingInfo& info : settings()) {
    Config config;
    EXPECT_NO_THROW(config.set(info.name, info.default_value)) << info.name;
    EXPECT_EQ(config, Config{}) << info.name;
  }
}

TEST(Config, ReturnsTheValueThatWasSet) {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    Config config;
    for (const SettingInfo& info : settings()) {
      const std::string value = some_value(info, random);
      config.set(round % 2 ? info.name : info.variable, value);
      EXPECT_EQ(config.get(info.name), value) << info.name;
    }
    Config copy;
    for (const SettingInfo& info : settings()) copy.set(info.name, config.get(info.name));
    EXPECT_EQ(copy, config);
  }
}

TEST(Config, SettingOneFieldLeavesTheOthers) {
  std::mt19937 random(12);
  for (const SettingInfo& changed : settings()) {
    Config config;
    config.set(changed.name, some_value(changed, random));
    for (const SettingInfo& other : settings()) {
      if (other.name == changed.name) continue;
      EXPECT_EQ(config.get(other.name), other.default_value);
    }
  }
}

TEST(Config, ChoicesIgnoreCaseAndAreStoredAsDocumented) {
  Config config;
  config.set("log_level", "info");
  EXPECT_EQ(config.log_level, "INFO");
  config.set("transport", "TCP");
  EXPECT_EQ(config.transport, "tcp");
}

TEST(Config, BytesTakeUnits) {
  Config config;
  config.set("chunk_bytes", "256KiB");
  EXPECT_EQ(config.chunk_bytes, 262144u);
  EXPECT_EQ(config.get("chunk_bytes"), "262144");
}

TEST(Config, RefusesWhatIsOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"transport", "udp"},
      {"transport", ""},
      {"log_level", "LOUD"},
      {"link_profile", "wifi"},
      {"port_base", "65536"},
      {"port_base", "-1"},
      {"port_base", "4K"},
      {"port_base", ""},
      {"chunk_bytes", "4095"},
      {"chunk_bytes", "1025M"},
      {"chunk_bytes", "-1"},
      {"small_msg_threshold", "2G"},
      {"transport_crc", "maybe"},
      {"transport_crc", ""},
      {"gpu_threshold", "-5"},
      {"compression", "zip"},
      {"topk_ratio", "0"},
      {"topk_ratio", "1.01"},
      {"topk_ratio", "nan"},
      {"algorithm", "best"},
      {"socket_buffer_bytes", "1"},
      {"timeout", "0"},
      {"timeout", "-3"},
      {"timeout", "inf"},
      {"connect_timeout", "1e12"},
      {"spin_us", "-1"},
      {"spin_us", "1000001"},
      {"rank", "-2"},
      {"world_size", "0"},
      {"root", std::string("a\0b", 3)},
      {"listen_addr", "a\nb"},
      {"job_key", std::string(5000, 'k')},
      {"require_key", "true"},
      {"require_key", "false"},
      {"require_key", "2"},
      {"require_key", ""},
  };
  for (const auto& [name, value] : faults) {
    Config config;
    const std::string message = refusal([&] { config.set(name, value); });
    EXPECT_THAT(message, HasSubstr(name + ": expected"));
    EXPECT_THAT(message, HasSubstr("found"));
    EXPECT_EQ(config, Config{}) << name;
  }
}

TEST(Config, AcceptsTheBoundsOfARange) {
  Config config;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"chunk_bytes", "4096"},
                                                        {"chunk_bytes", "1G"},
                                                        {"port_base", "0"},
                                                        {"port_base", "65535"},
                                                        {"topk_ratio", "1"},
                                                        {"topk_ratio", "1e-300"},
                                                        {"timeout", "0.001"},
                                                        {"rank", "-1"},
                                                        {"rank", "0"},
                                                        {"world_size", "1"},
                                                        {"socket_buffer_bytes", "0"}})
    EXPECT_NO_THROW(config.set(name, value)) << name << "=" << value;
}

TEST(Config, TheFaultyJobKeyIsNotShown) {
  Config config;
  EXPECT_THAT(refusal([&] { config.set("job_key", "hush\nhush"); }), Not(HasSubstr("hush")));
}

TEST(Config, MisspeltFieldNamesTheNearest) {
  Config config;
  EXPECT_THAT(refusal([&] { config.set("compresion", "fp16"); }),
              HasSubstr("compresion is not a setting; did you mean compression?"));
  EXPECT_THAT(refusal([&] { config.get("prot_base"); }), HasSubstr("did you mean port_base?"));
}

TEST(FromEnvironment, VariablesOverrideTheFileAndTheFileTheDefaults) {
  const TemporaryFile file(R"({"port_base": 1000, "chunk_bytes": "8M", "transport_crc": true})");
  const Config config = Config::from_environment(Environment{
      {"MCCL_CONFIG", file.path()}, {"MCCL_PORT_BASE", "2000"}, {"PATH", "/bin"}, {"RANK", "x"}});
  EXPECT_EQ(config.port_base, 2000);
  EXPECT_EQ(config.chunk_bytes, std::size_t{8} << 20);
  EXPECT_TRUE(config.transport_crc);
  EXPECT_EQ(config.timeout, 1800);
}

TEST(FromEnvironment, EmptyGivesTheDefaults) {
  EXPECT_EQ(Config::from_environment(Environment{}), Config{});
  EXPECT_EQ(Config::from_environment(Environment{{"MCCL_MLX", "1"}}), Config{});
}

TEST(FromEnvironment, EveryVariableIsRead) {
  std::mt19937 random(13);
  for (const SettingInfo& info : settings()) {
    const std::string value = some_value(info, random);
    const Config config =
        Config::from_environment(Environment{{std::string(info.variable), value}});
    EXPECT_EQ(config.get(info.name), value) << info.variable;
  }
}

TEST(FromEnvironment, UnknownVariableNamesTheNearest) {
  const auto message = [](const std::string& variable) {
    return refusal([&] { Config::from_environment(Environment{{variable, "1"}}); });
  };
  EXPECT_THAT(message("MCCL_PORTBASE"),
              HasSubstr("MCCL_PORTBASE is not a setting; did you mean MCCL_PORT_BASE?"));
  EXPECT_THAT(message("MCCL_CONFG"), HasSubstr("did you mean MCCL_CONFIG?"));
  EXPECT_THAT(message("MCCL_"), HasSubstr("MCCL_ is not a setting; remove it"));
  EXPECT_THAT(message("MCCL_FOO"), HasSubstr("MCCL_FOO is not a setting; remove it"));
}

TEST(FromEnvironment, AFaultyValueNamesItsVariable) {
  EXPECT_THAT(
      refusal([] {
        Config::from_environment(Environment{{"MCCL_TIMEOUT", "soon"}});
      }),
      HasSubstr("MCCL_TIMEOUT: expected a number, 0.001 to 31536000 seconds; found \"soon\""));
}

TEST(FromEnvironment, AGidIsAKindOrAnAddress) {
  const auto read = [](const std::string& text) {
    return Config::from_environment(Environment{{"MCCL_RDMA_GID", text}}).rdma_gid;
  };
  for (const char* text : {"", "roce_v2", "infiniband", "ipv6", "10.9.0.1", "fe80::1"})
    EXPECT_EQ(read(text), text);
  EXPECT_THAT(refusal([&] { read("foo"); }),
              HasSubstr("MCCL_RDMA_GID: expected one of roce_v2, roce_v1, infiniband, ipv4, ipv6, "
                        "or an address; found \"foo\"; correct it"));
  EXPECT_THAT(refusal([&] { read("roce_2"); }), HasSubstr("did you mean roce_v2?"));
}

TEST(FromEnvironment, TheAddressOfTheMetricsIsAnIpAddress) {
  Config config;
  for (const char* text : {"", "0.0.0.0", "::", "fe80::1"}) {
    config.set("metrics_addr", text);
    EXPECT_EQ(config.metrics_addr, text);
  }
  for (const char* text : {"localhost", "[::1]", "127.0.0.1:80", "127.0.0.1,0.0.0.0", "ipv6"}) {
    EXPECT_THAT(refusal([&] { config.set("metrics_addr", text); }),
                HasSubstr("metrics_addr: expected an IP address; found "));
  }
}

TEST(FromEnvironment, AnEmptyJobKeyIsAnError) {
  const std::string message = refusal([] {
    Config::from_environment(Environment{{"MCCL_JOB_KEY", ""}});
  });
  EXPECT_THAT(message, HasSubstr("MCCL_JOB_KEY is set and empty"));
  EXPECT_THAT(message, HasSubstr("openssl rand"));
}

TEST(FromEnvironment, MasterPortIsUsedIfItIsAPort) {
  const auto port = [](const std::string& text) {
    return Config::from_environment(Environment{{"MASTER_PORT", text}}).master_port;
  };
  EXPECT_EQ(port("29500"), 29500);
  EXPECT_EQ(port("65535"), 65535);
  for (const char* text : {"", "0", "65536", "-1", "http"}) EXPECT_EQ(port(text), 0) << text;
}

TEST(FromEnvironment, RefusesAFileThatCannotBeRead) {
  const auto message = [](const std::string& path) {
    return refusal([&] { Config::from_environment(Environment{{"MCCL_CONFIG", path}}); });
  };
  EXPECT_THAT(message("/nonexistent/mccl.json"), HasSubstr("/nonexistent/mccl.json"));
  EXPECT_THAT(message(std::filesystem::temp_directory_path()), HasSubstr("MCCL_CONFIG"));
  EXPECT_THAT(message(""), HasSubstr("MCCL_CONFIG"));
  const TemporaryFile large(std::string((std::size_t{1} << 20) + 1, ' '));
  EXPECT_THAT(message(large.path()), HasSubstr("larger"));
}

TEST(FromEnvironment, ReadsTheEnvironmentOfTheProcess) {
  ::setenv("MCCL_SPIN_US", "77", 1);
  EXPECT_EQ(Config::from_environment().spin_us, 77);
  ::unsetenv("MCCL_SPIN_US");
  EXPECT_EQ(Config::from_environment().spin_us, Config{}.spin_us);
}

}  // namespace
}  // namespace mccl
