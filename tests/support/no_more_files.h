// Keeps a test's process from opening files.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/descriptor.h"

namespace mccl::testing {

/// Keeps this process from opening more files during its lifetime.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const Descriptor next(::dup(0));
    limit_ = {static_cast<rlim_t>(next.get()), before_.rlim_max};
    resume();
  }
  ~NoMoreFiles() { suspend(); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

  rlim_t limit() const { return limit_.rlim_cur; }
  void suspend() const { ::setrlimit(RLIMIT_NOFILE, &before_); }
  void resume() const { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit_), 0); }

 private:
  rlimit before_ = {};
  rlimit limit_ = {};
};

}  // namespace mccl::testing
