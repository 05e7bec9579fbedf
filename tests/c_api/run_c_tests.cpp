// Runs the tests that are written in C.
#include <gtest/gtest.h>

#include <string>

#include "c_api/c_test.h"

int c_test_check(const char* file, int line, const char* condition, int holds) {
  if (holds == 0)
    ADD_FAILURE_AT(file, line) << condition << "\n  last error: " << mccl_last_error();
  return holds;
}

int c_test_check_status(const char* file, int line, const char* call, mccl_status found,
                        mccl_status expected) {
  if (found == expected) return 1;
  ADD_FAILURE_AT(file, line) << call << "\n  is " << mccl_status_name(found) << ", expected "
                             << mccl_status_name(expected)
                             << "\n  last error: " << mccl_last_error();
  return 0;
}

int c_test_check_text(const char* file, int line, const char* text, const char* words) {
  if (text && std::string(text).find(words) != std::string::npos) return 1;
  ADD_FAILURE_AT(file, line) << "'" << (text ? text : "(null)") << "'\n  lacks '" << words << "'";
  return 0;
}

int c_test_check_refused(const char* file, int line, const char* call, mccl_status found,
                         const char* words) {
  return c_test_check_status(file, line, call, found, MCCL_ERROR_INVALID_ARGUMENT) &&
         c_test_check_text(file, line, mccl_last_error(), words);
}

#define C_TEST_RUN(file, name) \
  TEST(CApi, file##_##name) { c_##file##_##name(); }
C_TESTS(C_TEST_RUN)
