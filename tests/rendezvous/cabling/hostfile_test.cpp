#include "rendezvous/cabling/hostfile.h"

#include <gmock/gmock.h>

#include "base/expect_refusal.h"

namespace mccl::rendezvous {
namespace {

using test::refusal;
using ::testing::HasSubstr;

AddressTable parse(std::string_view text) { return parse_hostfile(text, "hosts.json"); }

TEST(Hostfile, HasTheAddressesOfEveryRank) {
  const AddressTable table =
      parse(R"([["10.0.1.1:5000", "10.0.2.1:5001"], ["[fe80::1]:7"], ["desk:80"]])");
  ASSERT_EQ(table.size(), 3U);
  EXPECT_EQ(table[0].size(), 2U);
  EXPECT_EQ(text_of(table[0][1]), "10.0.2.1:5001");
  EXPECT_EQ(text_of(table[1][0]), "[fe80::1]:7");
  EXPECT_EQ(text_of(table[2][0]), "desk:80");
}

TEST(Hostfile, CountsARepeatedAddressOnce) {
  EXPECT_EQ(parse(R"([["10.0.1.1:5000", "10.0.1.1:5000"]])")[0].size(), 1U);
}

TEST(Hostfile, RefusesUnknownContentByName) {
  for (const auto& [text, what] :
       {std::pair("", "found the end of the file"), std::pair("[x]", "not JSON"),
        std::pair("{}", "not a list of ranks"), std::pair("[]", "not a list of ranks"),
        std::pair("[[]]", "rank 0 has no list"),
        std::pair("[[\"a:1\"], \"b:2\"]", "rank 1 has no list"),
        std::pair("[[\"a:1\"], [7]]", "rank 1 has 7"),
        std::pair("[[\"a\"]]", "rank 0 has the invalid address \"a\""),
        std::pair("[[\"a:0\"]]", "rank 0 has the invalid address"),
        std::pair("[[\"a:99999\"]]", "rank 0 has the invalid address"),
        std::pair("[[\"a:1\"], [\"b:1\"], [\"a:1\"]]", "ranks 0 and 2 have the same address")}) {
    const std::string found = refusal([text = text] { parse(text); });
    EXPECT_THAT(found, HasSubstr("hosts.json")) << text;
    EXPECT_THAT(found, HasSubstr(what)) << text;
  }
  EXPECT_THAT(refusal([] { read_hostfile("/nowhere/hosts.json"); }),
              HasSubstr("MCCL_HOSTFILE /nowhere/hosts.json cannot be read: No such file"));
}

TEST(Hostfile, RefusesDeeplyNestedBrackets) {
  // Printing such a value would recurse until the stack overflows.
  const std::string deep(100'000, '[');
  const std::string text = "[[" + deep + std::string(deep.size(), ']') + "]]";
  EXPECT_THAT(refusal([&] { parse(text); }), HasSubstr("found brackets more than 64 deep"));
}

TEST(Hostfile, RanksOfOneHostReachEachOther) {
  EXPECT_FALSE(may_be_sparse(parse(R"([["127.0.0.1:1"], ["127.0.0.1:2"], ["127.0.0.1:3"]])")));
  EXPECT_FALSE(may_be_sparse(parse(R"([["10.0.0.1:1"]])")));
  EXPECT_TRUE(may_be_sparse(parse(R"([["10.0.0.1:1"], ["10.0.1.1:2"], ["10.0.2.1:3"]])")));
}

TEST(Hostfile, DerivesCablesFromPairsOfAddresses) {
  for (const char* text :
       {R"([["10.0.0.1:1"], ["10.0.0.2:2"]])", R"([["10.0.0.1:1"], ["10.0.0.1:2"]])",
        R"([["10.0.0.1:1", "10.0.0.5:1"], ["10.0.0.2:2", "10.0.0.6:2"]])",
        R"([["10.0.0.1:1", "10.0.0.1:3"], ["10.0.0.2:2"]])", R"([["desk:1"], ["10.0.0.2:2"]])",
        R"([["[fd00::1]:1"], ["[fd00::9]:2"]])"})
    EXPECT_FALSE(may_be_sparse(parse(text))) << text;
  for (const char* text :
       {R"([["10.0.0.5:1"], ["10.0.0.2:2"]])",  // each on another cable, as in the file of
                                                // mlx.distributed_config
        R"([["10.0.0.1:1", "10.0.0.5:1"], ["10.0.0.6:2", "10.0.0.2:2"]])",
        R"([["10.0.0.1:1", "10.0.0.5:1"], ["10.0.0.2:2"]])", R"([["10.0.0.1:1"], ["10.0.1.1:2"]])",
        R"([["[fd00::1]:1"], ["[fd00:0:0:1::9]:2"]])"})
    EXPECT_TRUE(may_be_sparse(parse(text))) << text;
}

}  // namespace
}  // namespace mccl::rendezvous
