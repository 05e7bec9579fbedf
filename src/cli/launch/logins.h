// Limits the logins under way, because sshd drops some of many that arrive at once (MaxStartups).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

class Logins {
 public:
  /// Most logins under way at one machine. By default, sshd begins to drop logins at the tenth.
  static constexpr int kMost = 8;

  /// Takes a place at each of these machines and returns true. Takes none and returns false if one
  /// of them is full.
  bool begin(const std::vector<std::string>& machines);
  void end(const std::vector<std::string>& machines);

 private:
  std::map<std::string, int> under_way_;
};

/// Returns the machines that a login involves: the jump hosts and the host itself. `settings` is
/// the output of `ssh -G`. Empty if it names none.
std::vector<std::string> machines_of_login(std::string_view settings);

}  // namespace mccl::cli::launch
