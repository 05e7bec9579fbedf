#include "base/library_file.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace mccl {
namespace {

using ::testing::EndsWith;

TEST(LibraryFile, IsWhereTheLinkerFoundIt) {
  void* library = ::dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  if (!library) GTEST_SKIP() << "there is no libm.so.6: " << ::dlerror();
  const std::string file = library_file(library, "libm.so.6");
  EXPECT_THAT(file, EndsWith("/libm.so.6"));
  EXPECT_TRUE(std::filesystem::exists(file)) << file;
  ::dlclose(library);
}

TEST(LibraryFile, IsWhatWasAskedForWhereTheLinkerHasNoName) {
  void* program = ::dlopen(nullptr, RTLD_NOW);  // the program itself, which has no file name
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(library_file(program, "asked"), "asked");
  ::dlclose(program);
}

}  // namespace
}  // namespace mccl
