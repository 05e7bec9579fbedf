// Limits the number of logins in progress, because sshd drops some if many arrive together
// (MaxStartups).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

class Logins {
 public:
  /// Maximum number of logins in progress at one machine. By default, sshd begins to drop logins at
  /// the tenth.
  static constexpr int kMost = 8;

  /// Counts a login at each of these machines and returns true. If one of them has reached the
  /// limit, counts nothing and returns false.
  bool begin(const std::vector<std::string>& machines);
  void end(const std::vector<std::string>& machines);

 private:
  std::map<std::string, int> under_way_;
};

/// Returns the machines that a login involves: the jump hosts and the host itself. `settings` is
/// the output of `ssh -G`. Empty if the output contains none.
std::vector<std::string> machines_of_login(std::string_view settings);

}  // namespace mccl::cli::launch
