#include "cli/sight/survey.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/value_text.h"
#include "cli/kit/fields.h"
#include "cluster/text.h"
#include "mccl/error.h"
#include "node/local_socket.h"

namespace mccl::cli::sight {
namespace {

using node::LocalConnection;

/// The status thread of a rank needs at most half a second, unless its process is stopped.
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

std::string text_of(const RankSocket& rank) {
  return fmt::format("rank {} (process {})", rank.rank, rank.pid);
}

/// True unless the process of the socket has ended. If containers share the folder of the sockets,
/// this one cannot see the processes of the others, so a connection decides.
bool may_listen(const RankSocket& socket) try {
  if (::kill(socket.pid, 0) == 0 || errno != ESRCH) return true;
  const auto [connection, busy] = LocalConnection::dial(socket.path);
  return connection || busy;
} catch (const Error&) {
  return true;  // This process lacks descriptors.
}

/// Removes the socket of a process that has ended. A process of another container may not listen
/// yet if it has just made its socket, which therefore stays.
void remove_old(const std::string& path) {
  constexpr auto kSoon = std::chrono::seconds(10);
  std::error_code error;
  const auto made = std::filesystem::last_write_time(path, error);
  if (!error && made < std::filesystem::file_time_type::clock::now() - kSoon)
    ::unlink(path.c_str());
}

/// Ordered by process and rank.
std::vector<RankSocket> find_ranks() {
  std::vector<RankSocket> found;
  const std::string folder = node::make_status_folder();
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    auto socket = parse_socket_name(folder, each->path().filename().string());
    if (!socket) continue;
    if (may_listen(*socket)) {
      found.push_back(*std::move(socket));
    } else {
      remove_old(socket->path);
    }
  }
  std::ranges::sort(found, [](const RankSocket& a, const RankSocket& b) {
    return std::tie(a.pid, a.rank) < std::tie(b.pid, b.rank);
  });
  return found;
}

/// `pid` is 0 if it is unknown.
RankReport unanswered(const std::string& job, int rank, int pid, std::string_view trouble) {
  RankReport report;
  report.job = job;
  report.rank = rank;
  report.pid = pid;
  report.trouble = trouble;
  report.raw = {{"job", job}, {"rank", rank}, {"error", trouble}};
  if (pid != 0) report.raw["pid"] = pid;
  return report;
}

/// Returns nothing if the rank has ended. The job is taken from the name of the socket, so that a
/// rank that does not answer has the same job as the others.
std::vector<RankReport> ask_rank(const RankSocket& socket) {
  const std::string who = text_of(socket);
  try {
    RankReport report = parse_status(ask(socket, node::kRequestStatus), who);
    report.raw["job"] = report.job = socket.job;
    return {std::move(report)};
  } catch (const RankGone&) {
    return {};
  } catch (const Error& error) {
    std::string_view trouble = error.what();
    if (trouble.starts_with(who + " ")) trouble.remove_prefix(who.size() + 1);
    return {unanswered(socket.job, socket.rank, socket.pid, trouble)};
  }
}

/// Asks on threads, because waiting for a rank that does not answer takes seconds.
template <typename Element>
void ask_all(const std::vector<Element>& elements,
             std::vector<RankReport> (*ask_one)(const Element&), std::vector<RankReport>& answers) {
  std::vector<std::future<std::vector<RankReport>>> asked;
  asked.reserve(elements.size());
  for (const Element& element : elements)
    asked.push_back(std::async(std::launch::async, ask_one, std::cref(element)));
  for (auto& each : asked) std::ranges::move(each.get(), std::back_inserter(answers));
}

/// A job that has ranks on other hosts.
struct SpreadJob {
  RankSocket contact;      ///< A rank on this host that has answered, and is asked about others.
  std::vector<int> known;  ///< The ranks on this host, and those that have left or are lost.
  int size = 0;
};

std::vector<SpreadJob> spread_jobs(const std::vector<RankSocket>& sockets,
                                   const std::vector<RankReport>& answers) {
  std::map<std::string, SpreadJob> jobs;
  for (const RankReport& report : answers) {
    SpreadJob& job = jobs[report.job];
    job.known.push_back(report.rank);
    if (!report.trouble.empty()) continue;
    job.size = report.size;
    for (const PeerReport& peer : report.peers)
      if (peer.state == "left" || peer.state == "lost") job.known.push_back(peer.rank);
    const auto socket = std::ranges::find_if(sockets, [&](const RankSocket& candidate) {
      return candidate.pid == report.pid && candidate.rank == report.rank;
    });
    if (socket != sockets.end()) job.contact = *socket;
  }
  std::vector<SpreadJob> spread;
  for (auto& [name, job] : jobs) {
    std::ranges::sort(job.known);
    job.known.erase(std::unique(job.known.begin(), job.known.end()), job.known.end());
    if (std::cmp_less(job.known.size(), job.size)) spread.push_back(std::move(job));
  }
  return spread;
}

/// `text` is empty if the rank did not answer.
RankReport read_other(int rank, const std::string& text) {
  std::string trouble =
      "does not answer: its process is stopped or overloaded, or the network is slow";
  try {
    if (!text.empty()) {
      RankReport report = parse_status(text, "its status");
      if (report.rank == rank) return report;
      trouble = fmt::format("reports that it is rank {}", report.rank);
    }
  } catch (const InvalidArgument& error) {
    trouble = fmt::format("sent a status that cannot be read: {}", error.what());
  }
  return unanswered("", rank, 0, trouble);
}

/// If the query fails, each of the other ranks gets the reason as its `trouble`.
std::vector<RankReport> ask_for_others(const SpreadJob& job) {
  const RankSocket& contact = job.contact;
  std::vector<RankReport> others;
  try {
    others = read_others(ask(contact, node::kRequestOthers), text_of(contact), job.known);
    for (RankReport& each : others) each.raw["job"] = each.job = contact.job;
  } catch (const RankGone&) {
    // The rank that was asked has ended, so its job is ending. The job's ranks on other hosts are
    // not shown.
  } catch (const Error& error) {
    for (int rank = 0; rank < job.size; ++rank) {
      if (!std::ranges::binary_search(job.known, rank))
        others.push_back(
            unanswered(contact.job, rank, 0, fmt::format("could not be asked: {}", error.what())));
    }
  }
  return others;
}

}  // namespace

std::optional<RankSocket> parse_socket_name(const std::string& folder, std::string_view name) {
  const auto parts = cluster::split(name, '-');
  if (parts.size() != 3 || parts[2].size() != 8 ||
      parts[2].find_first_not_of("0123456789abcdef") != name.npos)
    return {};
  const auto pid = parse_integer(parts[0]);
  const auto rank = parse_integer(parts[1]);
  if (!pid || *pid < 1 || *pid > INT_MAX || !rank || *rank < 0 || *rank > INT_MAX) return {};
  return RankSocket{static_cast<pid_t>(*pid), static_cast<int>(*rank), std::string(parts[2]),
                    fmt::format("{}/{}", folder, name)};
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

std::vector<RankReport> read_others(std::string_view text, std::string_view who,
                                    std::span<const int> known) {
  const nlohmann::json object = parse_json(text, who, "the statuses of other ranks");
  const Fields fields(object, who);
  fields.require_format("mccl others");
  if (fields.has("trouble"))
    throw InvalidArgument(
        fmt::format("{} cannot query the other ranks: {}", who, fields.text("trouble")));
  std::vector<RankReport> others;
  for (const nlohmann::json& each : fields.list("ranks")) {
    const Fields other(each, who);
    const int rank = static_cast<int>(other.integer("rank", 0, Fields::kMostRanks));
    const std::string& report = other.raw_text("report");
    if (std::ranges::find(known, rank) == known.end()) others.push_back(read_other(rank, report));
  }
  return others;
}

std::vector<RankReport> survey(std::optional<int> pid) {
  std::vector<RankSocket> sockets = find_ranks();
  if (pid) {
    std::vector<std::string> jobs;
    for (const RankSocket& each : ranks_of(*pid)) jobs.push_back(each.job);
    std::erase_if(sockets, [&](const RankSocket& each) {
      return std::ranges::find(jobs, each.job) == jobs.end();
    });
  }
  std::vector<RankReport> answers;
  ask_all(sockets, ask_rank, answers);
  ask_all(spread_jobs(sockets, answers), ask_for_others, answers);
  return answers;
}

}  // namespace mccl::cli::sight
