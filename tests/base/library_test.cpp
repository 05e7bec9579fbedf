#include "base/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace mccl {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class Library : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!SharedLibrary::is_loaded("libc.so.6")) GTEST_SKIP() << "this system has no libc.so.6";
  }
};

TEST_F(Library, PathIsWhereTheLinkerFoundIt) {
  const SharedLibrary libc({"libc.so.6"});
  EXPECT_THAT(libc.path(), EndsWith("/libc.so.6"));
  EXPECT_TRUE(std::filesystem::exists(libc.path())) << libc.path();
}

TEST_F(Library, TheFirstNameThatExistsIsLoaded) {
  const SharedLibrary libc({"libno_such_library.so", "libc.so.6"});
  EXPECT_THAT(libc.path(), EndsWith("/libc.so.6"));
}

TEST_F(Library, FunctionsAreCalled) {
  const SharedLibrary libc({"libc.so.6"});
  const LibraryFunction<int(int)> absolute(libc, "abs");
  EXPECT_EQ(absolute(-3), 3);
  EXPECT_STREQ(absolute.name(), "abs");
}

TEST_F(Library, AnOptionalFunctionMayBeMissing) {
  const SharedLibrary libc({"libc.so.6"});
  EXPECT_FALSE((LibraryFunction<void()>(libc, "no_such_function", Need::optional)));
}

TEST_F(Library, ARequiredFunctionIsNamedIfItIsMissing) {
  const SharedLibrary libc({"libc.so.6"});
  try {
    const LibraryFunction<void()> function(libc, "no_such_function");
    FAIL() << "no error";
  } catch (const LoadError& error) {
    EXPECT_EQ(error.symbol(), "no_such_function");
  }
}

TEST(MissingLibrary, ReportsTheErrorOfTheLoader) {
  try {
    const SharedLibrary library({"libno_such_library.so"});
    FAIL() << "no error";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("libno_such_library.so"));
    EXPECT_EQ(error.symbol(), "");
  }
  EXPECT_FALSE(SharedLibrary::is_loaded("libno_such_library.so"));
}

}  // namespace
}  // namespace mccl
