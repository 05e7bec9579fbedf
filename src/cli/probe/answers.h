// What a probe finds out: lines on standard output.
#pragma once

#include <mutex>
#include <string_view>

namespace mccl::cli::probe {

class Answers {
 public:
  /// From any thread; each line at once.
  void say(std::string_view line);

 private:
  std::mutex mutex_;
};

}  // namespace mccl::cli::probe
