#include "cli/sight/attach.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <tuple>

#include "base/clock.h"
#include "base/value_text.h"
#include "cluster/text.h"
#include "node/local_socket.h"

namespace mccl::cli::sight {
namespace {

using node::LocalConnection;

/// Time that a rank may take to answer. The status thread of a rank needs at most half a second,
/// unless the process is stopped or overloaded.
constexpr std::chrono::seconds kPatience{2};
constexpr std::size_t kLargestAnswer = std::size_t{64} << 20;

/// Returns everything that the rank sends until it closes the connection.
std::string read_answer(const LocalConnection& connection, const std::string& who) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  std::string answer;
  for (char bytes[1 << 16];;) {
    pollfd ready = {connection.descriptor(), POLLIN, 0};
    if (::poll(&ready, 1, milliseconds_until(deadline)) == 0) {
      throw Error(fmt::format("{} has not answered for {} s: its process is stopped or overloaded",
                              who, kPatience.count()));
    }
    const ssize_t n = ::recv(connection.descriptor(), bytes, sizeof bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return answer;
    answer.append(bytes, static_cast<std::size_t>(n));
    if (answer.size() > kLargestAnswer)
      throw Error(fmt::format("{} answered with more than {} bytes", who, kLargestAnswer));
  }
}

}  // namespace

std::string text_of(const RankSocket& rank) {
  return fmt::format("rank {} (process {})", rank.rank, rank.pid);
}

bool parse_socket_name(const std::string& folder, std::string_view name, RankSocket& socket) {
  const auto parts = cluster::split(name, '-');
  if (parts.size() != 3 || parts[2].size() != 8 ||
      parts[2].find_first_not_of("0123456789abcdef") != name.npos)
    return false;
  const auto pid = parse_integer(parts[0]);
  const auto rank = parse_integer(parts[1]);
  if (!pid || *pid < 1 || *pid > INT_MAX || !rank || *rank < 0 || *rank > INT_MAX) return false;
  socket.pid = static_cast<pid_t>(*pid);
  socket.rank = static_cast<int>(*rank);
  socket.job = parts[2];
  socket.path = fmt::format("{}/{}", folder, name);
  return true;
}

std::vector<RankSocket> find_ranks() {
  std::vector<RankSocket> found;
  const std::string folder = node::make_status_folder();
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    RankSocket socket;
    if (!parse_socket_name(folder, each->path().filename().string(), socket)) continue;
    if (::kill(socket.pid, 0) == 0 || errno != ESRCH) {
      found.push_back(std::move(socket));
    } else {
      ::unlink(socket.path.c_str());
    }
  }
  std::ranges::sort(found, [](const RankSocket& a, const RankSocket& b) {
    return std::tie(a.pid, a.rank) < std::tie(b.pid, b.rank);
  });
  return found;
}

std::vector<RankSocket> ranks_of(pid_t pid) {
  std::vector<RankSocket> ranks = find_ranks();
  std::erase_if(ranks, [pid](const RankSocket& rank) { return rank.pid != pid; });
  if (!ranks.empty()) return ranks;
  errno = 0;
  if (::kill(pid, 0) != 0 && errno == EPERM)
    throw InvalidArgument(
        fmt::format("process {} belongs to another user; run mccl as that user", pid));
  if (errno == ESRCH)
    throw InvalidArgument(fmt::format("there is no process {} on this host", pid));
  throw InvalidArgument(fmt::format(
      "process {} has no socket in {}: it is in no job of several ranks, or its ranks are not "
      "connected yet",
      pid, node::status_folder()));
}

std::string ask(const RankSocket& rank, std::string_view request) {
  const std::string who = text_of(rank);
  const auto [connection, busy] = LocalConnection::dial(rank.path);
  if (busy)
    throw Error(fmt::format("too many processes wait for an answer from {}; try again later", who));
  if (!connection) throw RankGone(fmt::format("{} no longer listens at {}", who, rank.path));
  if (!connection.same_user())
    throw Error(fmt::format("the socket {} belongs to another user", rank.path));
  std::string answer;
  try {
    static_cast<void>(connection.send(std::as_bytes(std::span(request)), {}));
    answer = read_answer(connection, who);
  } catch (const PeerError&) {
    // The rank has just ended. Its answer is empty or incomplete, which is checked below.
  }
  if (answer.empty())
    throw RankGone(fmt::format("{} closed the connection, because it has just ended", who));
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (!json.is_object())
    throw Error(fmt::format("the answer of {} is incomplete; run the command again", who));
  if (const auto error = json.find("error"); error != json.end() && error->is_string()) {
    throw Error(fmt::format("{}: {}; run the mccl program of the job's own installation", who,
                            error->get<std::string>()));
  }
  return answer;
}

}  // namespace mccl::cli::sight
