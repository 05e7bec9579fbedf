#include "cli/probe/answers.h"

#include <cstdio>

namespace mccl::cli::probe {

void Answers::say(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace mccl::cli::probe
