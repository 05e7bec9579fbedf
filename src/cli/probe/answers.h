// What a probe answers: one JSON object a line on standard output.
#pragma once

#include <mutex>
#include <nlohmann/json_fwd.hpp>

namespace mccl::cli::probe {

class Answers {
 public:
  /// May be called from any thread; a line is never torn.
  void say(const nlohmann::json& answer);

 private:
  std::mutex mutex_;
};

}  // namespace mccl::cli::probe
