#include <gtest/gtest.h>

#include <random>
#include <string>

#include "expect_refusal.h"
#include "mccl/config.h"

namespace mccl {
namespace {

using test::refusal;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal_of(const std::string& text) {
  Config config;
  const std::string message = refusal([&] { config.merge_json(text, "job.json"); });
  EXPECT_EQ(config, Config{}) << "a refused file changed something: " << text;
  EXPECT_THAT(message, ::testing::StartsWith("job.json"));
  return message;
}

TEST(MergeJson, OverridesValuesOfEveryType) {
  Config config;
  config.set("ifname", "en5");
  config.merge_json(R"({"transport": "tcp", "port_base": 31000, "chunk_bytes": "1M",
                        "small_msg_threshold": 1024, "timeout": 2.5, "connect_timeout": 7,
                        "transport_crc": true, "fast_math": "off", "rank": -1})",
                    "job.json");
  EXPECT_EQ(config.transport, "tcp");
  EXPECT_EQ(config.port_base, 31000);
  EXPECT_EQ(config.chunk_bytes, std::size_t{1} << 20);
  EXPECT_EQ(config.small_msg_threshold, 1024u);
  EXPECT_EQ(config.timeout, 2.5);
  EXPECT_EQ(config.connect_timeout, 7);
  EXPECT_TRUE(config.transport_crc);
  EXPECT_FALSE(config.fast_math);
  EXPECT_EQ(config.ifname, "en5");
}

TEST(MergeJson, AnEmptyObjectChangesNothing) {
  Config config;
  config.merge_json(" {} ", "job.json");
  EXPECT_EQ(config, Config{});
}

TEST(MergeJson, NamesFileAndPositionOfGarbage) {
  EXPECT_THAT(refusal_of("{\"port_base\": 1,\n  oops}"), HasSubstr("job.json, line 2, column 3"));
  EXPECT_THAT(refusal_of(""), HasSubstr("line 1, column 1"));
  EXPECT_THAT(refusal_of("{\"rank\": 1"), HasSubstr("the end of the file"));
  EXPECT_THAT(refusal_of("\xff\xfe{}"), HasSubstr("expected a JSON object of settings"));
  EXPECT_THAT(refusal_of("{} {}"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(refusal_of("{\"timeout\": 1e999}"), HasSubstr("number"));
}

TEST(MergeJson, RefusesWhatIsNotAnObject) {
  for (const char* text : {"[]", "3", "null", "\"x\"", "true"})
    EXPECT_THAT(refusal_of(text), HasSubstr("expected a JSON object")) << text;
}

TEST(MergeJson, NamesTheNearestKey) {
  EXPECT_THAT(refusal_of(R"({"chunk_byte": 1})"), HasSubstr("did you mean chunk_bytes?"));
}

TEST(MergeJson, RefusesAKeyGivenTwice) {
  EXPECT_THAT(refusal_of(R"({"rank": 1, "rank": 2})"), HasSubstr("rank is given twice"));
  EXPECT_THAT(refusal_of(R"({"rank": 1, "MCCL_RANK": 1})"), HasSubstr("rank is given twice"));
}

TEST(MergeJson, RefusesTheWrongTypeAndNamesTheKey) {
  for (const char* text :
       {R"({"port_base": true})", R"({"port_base": null})", R"({"port_base": [1]})",
        R"({"port_base": 1.5})", R"({"port_base": 99999999999999999999})", R"({"port_base": {}})"})
    EXPECT_THAT(refusal_of(text), HasSubstr("job.json: port_base: expected")) << text;
  EXPECT_THAT(refusal_of(R"({"transport": 1})"), HasSubstr("expected a JSON string"));
  EXPECT_THAT(refusal_of(R"({"transport_crc": 1.5})"), HasSubstr("transport_crc: expected"));
}

TEST(MergeJson, DoesNotQuoteTheJobKey) {
  EXPECT_THAT(refusal_of(R"({"job_key": "hush" "rank": 1})"), Not(HasSubstr("hush")));
  EXPECT_THAT(refusal_of(R"({"job_key": "hush)"), Not(HasSubstr("hush")));
  EXPECT_THAT(refusal_of("{\"job_key\": \"hush\\n\"}"), Not(HasSubstr("hush")));
}

TEST(MergeJson, AnEmptyJobKeyIsAnError) {
  EXPECT_THAT(refusal_of(R"({"job_key": ""})"), HasSubstr("job.json: job_key is set and empty"));
}

TEST(MergeJson, TakesDeepNestingWithoutOverflow) {
  const std::size_t depth = 500'000;
  refusal_of(std::string(depth, '[') + std::string(depth, ']'));
  refusal_of("{\"rank\": " + std::string(depth, '[') + std::string(depth, ']') + "}");
}

TEST(MergeJson, RefusesAnOverflowingNumberWithItsPosition) {
  const std::string refusal = refusal_of("{\"rank\": 1,\n \"timeout\": 1e400}");
  EXPECT_THAT(refusal, HasSubstr("job.json, line 2, column "));
  EXPECT_THAT(refusal, HasSubstr("a number too large"));
}

/// Expects that any text is either accepted or refused with InvalidArgument.
void expect_taken_or_refused(const std::string& text) {
  Config config;
  try {
    config.merge_json(text, "fuzz");
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(config, Config{});
    EXPECT_STRNE(error.what(), "");
  }
}

TEST(MergeJson, SurvivesRandomBytes) {
  std::mt19937 random(17);
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random());
    expect_taken_or_refused(text);
    expect_taken_or_refused("{\"root\": \"" + text + "\"}");
  }
}

TEST(MergeJson, SurvivesRandomChangesOfAValidFile) {
  const std::string valid = R"({"transport": "tcp", "port_base": 31000, "chunk_bytes": "1M",
                                "timeout": 2.5, "transport_crc": true, "root": "h\u00e9:1"})";
  std::mt19937 random(19);
  for (int i = 0; i < 10000; ++i) {
    std::string text = valid;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 8);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
      }
      if (text.empty()) break;
    }
    expect_taken_or_refused(text);
  }
}

}  // namespace
}  // namespace mccl
