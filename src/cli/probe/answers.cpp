#include "cli/probe/answers.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace mccl::cli::probe {

void Answers::say(const nlohmann::json& answer) {
  // Replaces invalid UTF-8, since names on this host may contain any bytes.
  const std::string line =
      answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::scoped_lock lock(mutex_);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace mccl::cli::probe
