#include <gtest/gtest.h>

#include <random>

#include "mccl/error.h"
#include "rendezvous/connections/candidates.h"

namespace mccl::rendezvous {
namespace {

Endpoint sample() {
  return {3, "boot-1234-net-56", 29603, {"10.0.0.1", "fd00::1", "fe80::1%eth0"}, true, "b"};
}

TEST(Endpoint, SurvivesFormattingAndParsing) {
  EXPECT_EQ(parse_endpoint(serialise(sample())), sample());
  Endpoint other = sample();
  other.listed = false;
  other.addresses = {"127.0.0.1"};
  EXPECT_EQ(parse_endpoint(serialise(other)), other);
}

TEST(Endpoint, RefusesToPublishAnInvalidEndpoint) {
  const auto broken = [](auto change) {
    Endpoint endpoint = sample();
    change(endpoint);
    return endpoint;
  };
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.rank = -1; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.port = 0; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.host = ""; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.host = "a b"; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.host = "a\nport=1"; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.host_name = ""; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.host_name = "a\x1b"; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.addresses = {}; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.addresses = {"node1"}; })), InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.addresses = {"10.0.0.1\n"}; })),
               InvalidArgument);
  EXPECT_THROW(serialise(broken([](Endpoint& e) { e.addresses.assign(65, "10.0.0.1"); })),
               InvalidArgument);
}

TEST(Endpoint, AcceptsOnlyTheCanonicalForm) {
  const std::string text = serialise(sample());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  EXPECT_NO_THROW(parse_endpoint(text));
  for (const std::string& wrong : {
           std::string(),
           std::string("\n"),
           std::string("null"),
           std::string("[]"),
           text + "\n",
           text + "{}",
           " " + text,
           text.substr(0, text.size() - 1),
           with(R"("rank":3)", R"("rank":03)"),
           with(R"("rank":3)", R"("rank":+3)"),
           with(R"("rank":3)", R"("rank": 3)"),
           with(R"("rank":3)", R"("rank":3.0)"),
           with(R"("rank":3)", R"("rank":"3")"),
           with(R"("rank":3)", R"("rank":99999999999)"),
           with(R"("rank":3)", R"("rank":-1)"),
           with("29603", "0"),
           with("29603", "29603e99"),
           with("29603", "65536"),
           with(R"("listed":true)", R"("listed":1)"),
           with(R"("listed":true)", R"("listed":"yes")"),
           with("10.0.0.1", "10.0.0.256"),
           with("10.0.0.1", "node1"),
           with("fe80::1%eth0", "fe80::1%"),
           with("host", "hots"),
           with("boot", "bo\\tot"),
           with(R"(,"rank":3)", ""),
           with("}", R"(,"x":1})"),
       }) {
    EXPECT_THROW(parse_endpoint(wrong), InvalidArgument) << wrong;
  }
}

TEST(Endpoint, ParsesExactlyWhatItWrites) {
  std::mt19937 random(1);
  const std::string text = serialise(sample());
  for (int i = 0; i < 20'000; ++i) {
    std::string mutated = text;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % mutated.size();
      switch (random() % 3) {
        case 0:
          mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated.erase(at, 1 + random() % 4);
          break;
        default:
          mutated.insert(at, 1, "0\n=:%"[random() % 5]);
      }
      if (mutated.empty()) break;
    }
    try {
      EXPECT_EQ(serialise(parse_endpoint(mutated)), mutated);
    } catch (const InvalidArgument&) {
    }
  }
}

TEST(Endpoint, HugeTextIsRefused) {
  EXPECT_THROW(parse_endpoint(std::string(1 << 20, 'a')), InvalidArgument);
  std::string many = serialise(sample());
  for (int i = 0; i < 1000; ++i) many.insert(many.find('[') + 1, R"("10.0.0.1",)");
  EXPECT_THROW(parse_endpoint(many), InvalidArgument);
  EXPECT_THROW(parse_endpoint(std::string(32 * 1024, '[')), InvalidArgument);
}

}  // namespace
}  // namespace mccl::rendezvous
