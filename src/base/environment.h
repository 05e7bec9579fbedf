#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace mccl {

/// The variable that holds the job's key.
inline constexpr const char* kKeyVariable = "MCCL_JOB_KEY";

/// A copy of the environment. The destructor erases the job's key in it.
class ProcessEnvironment : public std::map<std::string, std::string> {
 public:
  ProcessEnvironment() = default;
  ProcessEnvironment(const ProcessEnvironment&) = default;
  ProcessEnvironment& operator=(const ProcessEnvironment&) = delete;
  ~ProcessEnvironment();
};

ProcessEnvironment process_environment();

/// A hash of this process's environment variables that begin with one of `prefixes`, none of which
/// may be empty. The hash changes when such a variable is added, removed or changed, except for
/// collisions. Cheaper than process_environment().
std::uint64_t environment_fingerprint(std::span<const std::string_view> prefixes);

}  // namespace mccl
