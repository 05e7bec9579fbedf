// How ssh is called, and what its complaints mean.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/host.h"

namespace mccl::cli::launch {

enum class SshRole {
  master,            ///< Opens a connection that others share, at a socket.
  session,           ///< Goes through such a connection.
  terminal_session,  ///< The same with a terminal on the other side.
  alone,             ///< Has a connection of its own.
};

/// The words of an ssh that never asks for anything and ends when the other side has been silent
/// for `silence`, up to four seconds later. `socket` is that of the shared connection, "none" for
/// one alone. `extra` are arguments of the user's.
std::vector<std::string> ssh_words(const Host& host, SshRole role, const std::string& socket,
                                   std::chrono::seconds silence,
                                   const std::vector<std::string>& extra,
                                   const std::string& command);

/// What ssh's complaint on standard error means for people, with the cure.
std::string explain_ssh(const Host& host, std::string_view complaint);

}  // namespace mccl::cli::launch
