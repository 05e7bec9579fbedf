// Runs ssh: builds its command lines, limits and retries logins, and explains its error messages.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/kit/host.h"
#include "cli/kit/process.h"

namespace mccl::cli {

enum class SshRole {
  master,            ///< Opens a connection that sessions share through a local socket.
  session,           ///< Uses the connection of a master.
  terminal_session,  ///< Uses the connection of a master, with a terminal on the remote host.
  alone,             ///< Opens a connection for itself only.
};

/// Default time limit for connecting to a host and logging in there.
inline constexpr std::chrono::seconds kUsualConnectTimeout{10};

/// Returns the argv of an ssh that never prompts, and that ends if the server sends nothing for
/// `silence`, rounded up to a multiple of 4 s. `socket` is the path of the shared connection's
/// socket, or "none". `extra` holds the user's arguments.
std::vector<std::string> ssh_words(const Host& host, SshRole role, const std::string& socket,
                                   std::chrono::seconds silence,
                                   const std::vector<std::string>& extra,
                                   const std::string& command,
                                   std::chrono::seconds connect_timeout = kUsualConnectTimeout);

/// Returns ssh's arguments that name the host, with the user's own arguments `extra`. A command may
/// follow them.
std::vector<std::string> destination_words(const Host& host, const std::vector<std::string>& extra);

/// Returns the arguments by which ssh and ssh-copy-id reach the host, quoted for a shell:
/// "-p 2222 me@b".
std::string login_text(const Host& host);

/// Starts ssh or sh from the PATH of the plan's environment. Throws Error if it is not there; the
/// message begins with "cannot" and `purpose`.
ChildProcess start_ssh(ProcessPlan plan, std::string_view purpose);

/// Options for connecting to hosts, the same for all hosts.
struct Reaching {
  std::map<std::string, std::string> environment;
  std::vector<std::string> ssh_arguments;
  bool verbose = false;  ///< True if the requests to each host are printed.
};

/// Starts a shell on this machine or on another host.
ChildProcess start_shell(const Host& host, const Reaching& reaching);
/// See make_room_for_files().
void make_room_for_shells(std::size_t shells);

/// Returns the time before the next try of a login that has failed for the `tries`-th time, if
/// `complaint`, ssh's error text, shows that the server dropped it because many arrived together.
/// The times double and are randomised, so that such logins do not collide again.
std::optional<Clock::duration> pause_before_login(int tries, std::string_view complaint);

/// Limits the logins in progress, because sshd drops some if many arrive together (MaxStartups).
class Logins {
 public:
  /// Limit for one machine. By default, sshd begins to drop logins once ten are in progress.
  static constexpr std::size_t kMost = 8;

  /// Counts a login at each machine. If one has reached the limit, counts nothing, returns false.
  bool begin(const std::vector<std::string>& machines);
  void end(const std::vector<std::string>& machines);

 private:
  std::map<std::string, std::size_t> under_way_;
};

/// Returns the jump hosts and the host itself, from `settings`, the output of `ssh -G`.
std::vector<std::string> machines_of_login(std::string_view settings);

/// Returns the last line of the text, without its line end.
std::string_view last_line_of(std::string_view text);

/// Explains the error text of ssh, or of a shell on this machine, to the user, with advice.
std::string explain_ssh(const Host& host, std::string_view complaint);

}  // namespace mccl::cli
