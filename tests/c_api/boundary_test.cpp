// Any exception becomes a status and a text.
#include "c_api/boundary.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "mccl/error.h"

namespace mccl::c_api {
namespace {

template <typename Thrown>
void expect(const Thrown& thrown, mccl_status status, const std::string& words) {
  EXPECT_EQ(guarded([&] { throw thrown; }), status) << mccl_status_name(status);
  EXPECT_NE(std::string(mccl_last_error()).find(words), std::string::npos) << mccl_last_error();
}

TEST(Boundary, EveryErrorHasAStatus) {
  expect(InvalidArgument("wrong"), MCCL_ERROR_INVALID_ARGUMENT, "wrong");
  expect(TimeoutError("late"), MCCL_ERROR_TIMEOUT, "late");
  expect(PeerError("gone"), MCCL_ERROR_PEER, "gone");
  expect(MismatchError("other"), MCCL_ERROR_MISMATCH, "other");
  expect(AbortedError("ended"), MCCL_ERROR_ABORTED, "ended");
  expect(CorruptionError("bits"), MCCL_ERROR_CORRUPTION, "bits");
  expect(Error("else"), MCCL_ERROR_OTHER, "else");
  expect(NoRoom("short"), MCCL_ERROR_NO_ROOM, "short");
  expect(std::system_error(EMFILE, std::generic_category(), "socket"), MCCL_ERROR_OTHER, "socket");
}

TEST(Boundary, UnknownExceptionsAreInternalErrors) {
  expect(std::logic_error("never"), MCCL_ERROR_INTERNAL, "never");
  expect(42, MCCL_ERROR_INTERNAL, "report");
}

TEST(Boundary, OutOfMemoryIsAnError) {
  expect(std::bad_alloc(), MCCL_ERROR_OUT_OF_MEMORY, "out of memory");
}

TEST(Boundary, SuccessIsQuiet) {
  expect(Error("before"), MCCL_ERROR_OTHER, "before");
  EXPECT_EQ(guarded([] {}), MCCL_OK);
  EXPECT_STREQ(mccl_last_error(), "before");
  EXPECT_EQ(text_of(nullptr).status, MCCL_OK);
  EXPECT_EQ(text_of(nullptr).text, "");
}

}  // namespace
}  // namespace mccl::c_api
