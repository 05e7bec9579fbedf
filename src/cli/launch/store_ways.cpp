#include "cli/launch/store_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/value_text.h"
#include "cli/kit/ssh.h"

namespace mccl::cli::launch {
namespace {

using namespace std::chrono_literals;

/// Time limit for the answers of all forwarders. Each tries addresses for 1.5 s.
constexpr auto kForAnswers = 10s;
constexpr std::string_view kWord = "mccl-forward ";

/// Returns the addresses of rank 0's host: those of the hostfile, and the one at which ssh reached
/// it.
std::vector<std::string> addresses_of_first(const Job& job, const std::vector<Reached>& reached) {
  std::vector<std::string> addresses = job.entry_of(job.ranks.front()).addresses;
  const std::string& other = reached[job.ranks.front().host].address;
  if (std::ranges::find(addresses, other) == addresses.end()) addresses.push_back(other);
  return addresses;
}

/// Returns how a request to ssh ended, or nothing if it still runs.
std::optional<Exit> ended(Process& request) {
  if (request.id < 0) return {};
  std::optional<Exit> exit = reap(request.id);
  if (exit) request = {};
  return exit;
}

}  // namespace

StoreWays::StoreWays(const Job& job, const Hosts& hosts, const std::vector<Reached>& reached,
                     std::uint16_t port, const std::string& folder)
    : job_(job),
      hosts_(hosts),
      port_(port),
      first_(job.ranks.front().host),
      limit_(Clock::now() + kForAnswers) {
  const bool first_is_here = is_here(job.hosts[first_]);
  here_ = first_is_here ? fmt::format("127.0.0.1:{}", port) : folder + "/store";
  led_here_ = first_is_here;
  for (const Reached& host : reached) folders_.push_back(host.folder);
  const std::vector<std::string> addresses = addresses_of_first(job, reached);
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    if (host == first_) continue;
    std::vector<std::string> words = {"forward", "--socket", socket_on(host), "--port",
                                      std::to_string(port)};
    for (const std::string& address : addresses) words.insert(words.end(), {"--to", address});
    std::optional<Process> forwarder = hosts[host]->start_mccl(words);
    if (!forwarder) continue;
    const std::size_t at = ways_.size();
    Dialogue dialogue([this, at](std::string_view line) { hear(*ways_[at], line); },
                      [this, at] {
                        if (ways_[at]->state == State::asking) ways_[at]->state = State::failed;
                      });
    ways_.emplace_back(new Way{.host = host, .forwarder = std::move(dialogue)});
    ways_.back()->forwarder.begin(std::move(*forwarder));
  }
}

void StoreWays::watch(Watch& watch) {
  for (const auto& way : ways_) way->forwarder.watch(watch);
  if (done()) return;
  if (Clock::now() < limit_) {
    watch.at(limit_);
    return;
  }
  for (const auto& way : ways_)
    if (way->state == State::asking || way->state == State::leading) way->state = State::failed;
}

void StoreWays::hear(Way& way, std::string_view line) {
  if (!line.starts_with(kWord) || way.state != State::asking) return;
  line.remove_prefix(kWord.size());
  const std::string_view word = line.substr(0, line.find(' '));
  const std::string_view rest = line.substr(std::min(line.size(), word.size() + 1));
  if (word == "direct") {
    way.address = rest;
    way.state = State::direct;
  } else if (const auto port = parse_integer(rest);
             word == "listening" && port && *port > 0 && *port <= 65535) {
    way.port = static_cast<std::uint16_t>(*port);
    lead(way);
  }
}

/// Forwards the forwarder's socket to this machine, and from here to the store. The second part
/// serves all hosts.
void StoreWays::lead(Way& way) {
  way.state = State::leading;
  if (!led_here_) {
    led_here_ = true;
    request_here_ =
        *hosts_[first_]->request_forward("-L", fmt::format("{}:127.0.0.1:{}", here_, port_));
  }
  std::optional<Process> request =
      hosts_[way.host]->request_forward("-R", fmt::format("{}:{}", socket_on(way.host), here_));
  if (request) {
    way.request = std::move(*request);
  } else {  // This machine: the forwarder's socket already leads to the store.
    way.state = State::led;
  }
}

void StoreWays::collect() {
  const std::optional<Exit> here = ended(request_here_);
  for (const auto& way : ways_) {
    const std::optional<Exit> exit = ended(way->request);
    if (exit) way->state = exit->good() ? State::led : State::failed;
    if (here && !here->good() && way->port != 0) way->state = State::failed;
  }
}

bool StoreWays::done() const {
  return request_here_.id < 0 && std::ranges::none_of(ways_, [](const auto& way) {
           return way->state == State::asking || way->state == State::leading;
         });
}

void StoreWays::enter(std::vector<Reached>& reached) const {
  for (const auto& way : ways_) {
    Reached& host = reached[way->host];
    if (way->state == State::direct) host.store = {way->address, port_};
    if (way->state == State::led) host.store = {"127.0.0.1", way->port};
  }
}

std::vector<std::string> StoreWays::complaints() const {
  std::vector<std::string> complaints;
  for (const auto& way : ways_) {
    if (way->state != State::failed) continue;
    const std::string why =
        way->port == 0
            ? fmt::format(
                  "\"mccl forward\", which checks whether this host reaches the host of rank 0, "
                  "does not "
                  "run there ({}); is its mccl another version?",
                  printable(last_line_of(way->forwarder.complaint())))
            : "it does not reach the host of rank 0, and ssh does not forward a socket from one to "
              "the other (AllowStreamLocalForwarding and AllowTcpForwarding in sshd_config)";
    complaints.push_back(
        fmt::format("{}: {}. If it does not reach that host, torch programs need "
                    "init_method=\"mccl://\" instead of env://",
                    text_of(job_.hosts[way->host]), why));
  }
  return complaints;
}

}  // namespace mccl::cli::launch
