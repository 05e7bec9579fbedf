// How ssh is called, and what its complaints mean.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/launch/host.h"

namespace mccl::cli::launch {

enum class SshRole {
  master,            ///< Opens a connection that others share, at a socket.
  session,           ///< Goes through such a connection.
  terminal_session,  ///< The same with a terminal on the other side.
  alone,             ///< Has a connection of its own.
};

/// To connect and to log in.
inline constexpr std::chrono::seconds kUsualConnectTimeout{10};

/// The words of an ssh that never asks for anything and ends when the other side has been silent
/// for `silence`, up to four seconds later. `socket` is that of the shared connection, "none" for
/// one alone. `extra` are arguments of the user's.
std::vector<std::string> ssh_words(const Host& host, SshRole role, const std::string& socket,
                                   std::chrono::seconds silence,
                                   const std::vector<std::string>& extra,
                                   const std::string& command,
                                   std::chrono::seconds connect_timeout = kUsualConnectTimeout);

/// The words of an ssh that connects to nothing and prints the settings that it would use.
std::vector<std::string> ssh_settings_words(const Host& host,
                                            const std::vector<std::string>& extra);

/// The words of an ssh that has the shared connection forward something; `flag` is -L or -R.
std::vector<std::string> ssh_forward_words(const Host& host, const std::string& socket,
                                           const std::vector<std::string>& extra,
                                           const std::string& flag, const std::string& from_and_to);

/// When to log in again after a server has dropped a login because many came at once. The pauses
/// double, with some chance in them, so that logins dropped together come back apart.
class LoginRetry {
 public:
  /// True if a login may begin now.
  bool is_due() const { return Clock::now() >= next_try_; }
  Clock::time_point next_try() const { return next_try_; }
  bool has_begun() const { return tries_ > 0; }
  void begin() { ++tries_; }
  /// Called after a login that failed with this complaint of ssh's. Returns true, and sets
  /// `next_try`, if it is to be tried again.
  bool tries_again(std::string_view complaint);
  void give_up() { tries_ = kMostTries; }

 private:
  static constexpr int kMostTries = 6;

  int tries_ = 0;
  Clock::time_point next_try_ = {};
};

/// Without its end.
std::string_view last_line_of(std::string_view text);

/// What ssh's complaint on standard error means for people, with the cure.
std::string explain_ssh(const Host& host, std::string_view complaint);

}  // namespace mccl::cli::launch
