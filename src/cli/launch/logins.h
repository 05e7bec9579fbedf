// Logins under way: an sshd drops some of many that come at once (MaxStartups).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mccl::cli::launch {

class Logins {
 public:
  /// At each machine. An sshd begins to drop logins at the tenth, unless told otherwise.
  static constexpr int kMost = 8;

  /// Takes a place at each of these machines, or at none of them and returns false.
  bool begin(const std::vector<std::string>& machines);
  void end(const std::vector<std::string>& machines);

 private:
  std::map<std::string, int> under_way_;
};

/// The machines at which a login takes place: the jump hosts and the host itself, from what
/// `ssh -G` prints. Empty when it printed nothing of the kind.
std::vector<std::string> machines_of_login(std::string_view settings);

}  // namespace mccl::cli::launch
