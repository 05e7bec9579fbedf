// Tests which key the ranks of an MPI job use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "backend/mpi/key_source.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const KeyFacts& facts) {
  try {
    (void)key_source_of(facts, 3);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(MpiKeySource, AKeyOfAllRanksIsUsed) {
  for (const bool one_host : {false, true}) {
    for (const bool is_required : {false, true}) {
      EXPECT_EQ(key_source_of({.one_host = one_host,
                               .some_have_key = true,
                               .some_lack_key = false,
                               .is_required = is_required},
                              0),
                KeySource::settings);
    }
  }
}

TEST(MpiKeySource, RanksOfOneHostNeedNone) {
  EXPECT_EQ(key_source_of({}, 0), KeySource::mpi);
  EXPECT_EQ(key_source_of({.is_waived = true}, 0), KeySource::mpi);
}

TEST(MpiKeySource, ARequiredKeyIsAskedFor) {
  for (const bool one_host : {false, true}) {
    const std::string text = refusal_of({.one_host = one_host, .is_required = true});
    EXPECT_THAT(text, HasSubstr("rank 3 does not start: MCCL_REQUIRE_KEY is 1"));
    EXPECT_THAT(text, HasSubstr("export MCCL_JOB_KEY="));
  }
}

TEST(MpiKeySource, RanksOnSeveralHostsNeedOneUnlessItIsWaived) {
  const std::string text = refusal_of({.one_host = false});
  EXPECT_THAT(text, HasSubstr("run on several hosts"));
  EXPECT_THAT(text, HasSubstr("export MCCL_JOB_KEY="));
  EXPECT_EQ(key_source_of({.one_host = false, .is_waived = true}, 0), KeySource::mpi);
}

TEST(MpiKeySource, DataThatMustBeEncryptedIsNotSentBetweenHosts) {
  const KeyFacts facts = {
      .one_host = false, .encrypts = true, .some_have_key = true, .some_lack_key = false};
  EXPECT_THAT(refusal_of(facts), HasSubstr("set MCCL_BACKEND=native, or MCCL_ENCRYPTION=off"));
  EXPECT_EQ(key_source_of({.encrypts = true}, 0), KeySource::mpi);
}

TEST(MpiKeySource, AKeyOfSomeRanksIsAnError) {
  EXPECT_THAT(refusal_of({.some_have_key = true}), HasSubstr("on some ranks"));
}

}  // namespace
}  // namespace mccl::mpi
