// Writes the answers of a probe: one JSON object per line on standard output.
#pragma once

#include <mutex>
#include <nlohmann/json_fwd.hpp>

namespace mccl::cli::probe {

class Answers {
 public:
  /// Writes an answer as one line of standard output. Thread-safe: lines are never mixed.
  void say(const nlohmann::json& answer);

 private:
  std::mutex mutex_;
};

}  // namespace mccl::cli::probe
