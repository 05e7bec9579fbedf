// Tests the text of findings.
#include "cluster/finding.h"

#include <gtest/gtest.h>

#include <string>

namespace mccl::cluster {
namespace {

TEST(FindingText, IsWholeAndEscaped) {
  const std::string tail(300, 'x');
  const Finding finding{.id = "id",
                        .what = "what" + tail + "\x1b",
                        .where = "where" + tail,
                        .why = "why" + tail,
                        .cure = "cure" + tail};
  EXPECT_EQ(text_of({&finding, 1}), "problem: where" + tail + ": what" + tail +
                                        "\\x1b\n  why:  why" + tail + "\n  cure: cure" + tail +
                                        "\n");
}

}  // namespace
}  // namespace mccl::cluster
