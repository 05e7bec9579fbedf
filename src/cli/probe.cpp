// `mccl probe`: executes the requests of mccl doctor and mccl config on this host.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/open_files.h"
#include "base/thread.h"
#include "base/value_text.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/probe/connections.h"
#include "cli/probe/gather.h"
#include "cli/probe/packets.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

using nlohmann::json;
constexpr std::size_t kMostThreads = 512;
constexpr double kLongest = 10;
constexpr int kMostPatience = 3600;
constexpr std::size_t kShortestKey = 16;

[[noreturn]] void refuse(const char* key, const char* expected) {
  throw InvalidArgument(
      fmt::format("a request to mccl probe has no valid \"{}\"; expected {}", key, expected));
}

std::string text_in(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_string()) refuse(key, "text");
  return found->get<std::string>();
}

double number_in(const json& request, const char* key, double least, double most) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_number()) refuse(key, "a number");
  const auto value = found->get<double>();
  if (!(value >= least && value <= most)) refuse(key, "a number in the valid range");
  return value;
}

Address address_of(const std::string& text, double port) {
  const auto address = Address::parse_numeric(text, static_cast<std::uint16_t>(port));
  if (!address) throw InvalidArgument(fmt::format("{} is not an address", in_quotes(text)));
  return *address;
}

/// Listens at the first free port of a range, or at any free port if all ports of the range are
/// taken.
transport::tcp::Listener listen_within(std::uint16_t first, std::uint16_t last) {
  for (int port = first; port <= last + 1; ++port) {
    for (const int family : {AF_INET6, AF_INET}) {
      try {
        const auto here = static_cast<std::uint16_t>(port > last ? 0 : port);
        return transport::tcp::Listener(Address::wildcard(family, here), 0);
      } catch (const transport::tcp::BindError& error) {
        // After other errors, such as a lack of IPv6, the loop tries the next address family.
        if (error.code == EADDRINUSE) break;
      }
    }
  }
  throw Error("no port is free on this host");
}

double now_in_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Parameters of a request to connect to another probe: "id", "to", "port", and optionally "from".
struct Target {
  explicit Target(const json& request)
      : id(number_in(request, "id", 0, 1e9)),
        to(address_of(text_in(request, "to"), number_in(request, "port", 1, 65535))) {
    if (request.contains("from")) source = address_of(text_in(request, "from"), 0);
  }

  const Address* from() const { return source ? &*source : nullptr; }

  double id;
  Address to;
  std::optional<Address> source;
};

/// Executes requests, and writes the answers to standard output.
class Agent {
 public:
  /// If `as_macos` is true, the facts of this host are gathered with macOS's programs. Tests replay
  /// the recorded output of these programs on other systems.
  explicit Agent(bool as_macos) : as_macos_(as_macos) {}
  ~Agent() {
    for (std::thread& thread : threads_) thread.join();
  }

  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Executes a request. Requests that test a connection are answered later, in any order. Throws
  /// InvalidArgument for an invalid or unknown request.
  void obey(const nlohmann::json& request) {
    using Action = void (Agent::*)(const json&);
    constexpr std::pair<std::string_view, Action> kActions[] = {
        {"tell", &Agent::describe_host}, {"listen", &Agent::listen}, {"call", &Agent::call},
        {"dial", &Agent::dial},          {"packet", &Agent::packet}, {"time", &Agent::time},
    };
    if (!request.is_object()) throw InvalidArgument("a request to mccl probe is not a JSON object");
    const std::string name = text_in(request, "do");
    const auto* const found =
        std::ranges::find(kActions, name, &std::pair<std::string_view, Action>::first);
    if (found == std::end(kActions))
      throw InvalidArgument(
          fmt::format("mccl probe does not know the request {}", in_quotes(name)));
    (this->*found->second)(request);
  }

 private:
  /// Throws InvalidArgument if no "listen" request has provided the key yet.
  const Secret& secret() const {
    if (!secret_)
      throw InvalidArgument(
          "mccl probe has no key yet: the request \"listen\", which contains the key, must come "
          "first");
    return *secret_;
  }

  /// Writes an answer as one line of standard output. Thread-safe: lines are never mixed.
  void say(const nlohmann::json& answer) {
    // Replaces invalid UTF-8, since names on this host may contain any bytes.
    const std::string line = answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    const std::scoped_lock lock(mutex_);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  void start(std::function<void()> body) {
    if (threads_.size() == kMostThreads) {
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
    }
    threads_.push_back(start_thread("mccl-probe", std::move(body)));
  }

  /// Runs a connection test on a separate thread, and writes its result as an answer named `kind`.
  /// Throws InvalidArgument if no "listen" request has provided the key yet.
  void test(const char* kind, const nlohmann::json& request,
            std::function<nlohmann::json(const Target&)> run) {
    secret();
    start([this, kind, target = Target(request), run = std::move(run)] {
      json answer = run(target);
      answer["id"] = target.id;
      say({{kind, answer}});
    });
  }

  void describe_host(const nlohmann::json& request) {
    // The clock is read before anything that takes time, because the caller compares the clock with
    // the time of its request.
    say({{"mccl", MCCL_VERSION}, {"protocol", kProtocol}, {"clock", now_in_epoch()}});
    GatherPlan plan;
    plan.python = text_in(request, "python");
    plan.patience =
        std::chrono::seconds(static_cast<int>(number_in(request, "patience", 1, kMostPatience)));
    plan.as_macos = as_macos_;
    const cluster::HostFacts facts = gather(plan, [this](const std::string& program) {
      say({{"busy", program}});
    });
    say({{"told", json_of(facts)}});
  }

  void listen(const nlohmann::json& request) {
    if (secret_) throw InvalidArgument("mccl probe is already listening");
    const std::string key = text_in(request, "key");
    if (key.size() < kShortestKey) refuse("key", "text of at least 16 characters");
    // The limit of open files is raised only now, because describe_host() must report the limit
    // with which a job starts.
    raise_open_files_limit();
    secret_.emplace(key);
    std::vector<transport::tcp::Listener> listeners;
    listeners.reserve(kPortRanges.size());
    for (const auto& [first, last] : kPortRanges) listeners.push_back(listen_within(first, last));
    listeners_.emplace(*secret_, std::move(listeners));
    calls_.emplace(*secret_, [this](const json& answer) { say(answer); });
    say({{"listening",
          {{"ports", listeners_->ports()},
           {"packets", calls_->packet_port()},
           {"calls", calls_->hears()}}}});
  }

  void call(const nlohmann::json& request) {
    secret();
    start([this, name = number_in(request, "name", 0, 1e9)] {
      calls_->call(fmt::format("{:.0f}", name));
      say({{"called", true}});
    });
  }

  void dial(const nlohmann::json& request) {
    test("dialled", request, [this](const Target& target) -> json {
      const std::string why = probe::dial(secret(), target.to, target.from());
      return {{"good", why.empty()}, {"why", why}};
    });
  }

  void packet(const nlohmann::json& request) {
    const auto bytes = static_cast<int>(number_in(request, "bytes", 0, 65535));
    test("packet", request, [this, bytes](const Target& target) -> json {
      return {{"good", packet_arrives(secret(), target.to, target.from(), bytes)}};
    });
  }

  void time(const nlohmann::json& request) {
    const double seconds = number_in(request, "seconds", 0, kLongest);
    test("timed", request, [this, seconds](const Target& target) -> json {
      const Timed timed = time_link(secret(), target.to, target.from(), seconds);
      return {{"latency_s", timed.latency_s}, {"bytes_per_s", timed.bytes_per_s}};
    });
  }

  const bool as_macos_;
  std::mutex mutex_;  ///< Held while an answer is written.
  std::optional<Secret> secret_;
  std::optional<Listeners> listeners_;
  std::optional<MulticastProbe> calls_;
  std::vector<std::thread> threads_;
};

constexpr const char* kFooter =
    R"(Reads requests, one JSON object per line, and prints answers in the same form. Exits when its
input ends. mccl doctor and mccl config start it on each host; it is not meant to be run by hand.
Requests and answers:
  {"do": "tell", "python": PATH, "patience": S}   {"mccl": .., "protocol": .., "clock": ..},
                                                  {"busy": PROGRAM}, {"told": {..}}
  {"do": "listen", "key": KEY}                    {"listening": {"ports": [..], "packets": PORT, ..}}
  {"do": "call", "name": N}                       {"called": true}; on other hosts
                                                  {"heard": {"at": .., "from": .., "name": N}}, or
                                                  {"unanswered": ..} if the caller does not answer
  {"do": "dial", TARGET}                          {"dialled": {"id": .., "good": .., ..}}
  {"do": "packet", TARGET, "bytes": N}            {"packet": {"id": .., "good": ..}}
  {"do": "time", TARGET, "seconds": S}            {"timed": {"id": .., "latency_s": .., ..}}
TARGET is "id", "to", "port", and optionally "from", the source address of the connection. The key
belongs to this run alone; only proofs that both ends know it go over the network.)";

#ifdef __APPLE__
constexpr const char* kThisSystem = "macos";
#else
constexpr const char* kThisSystem = "linux";
#endif

int run_probe(bool as_macos) {
  const auto agent = std::make_unique<Agent>(as_macos);
  for (std::string line; std::getline(std::cin, line);)
    agent->obey(parse_json(line, "standard input of mccl probe", "a request"));
  // The requesting command has ended and reads no more results, so this process exits without
  // waiting for tests that still run.
  std::fflush(stdout);
  std::_Exit(kGood);
}

}  // namespace

Command add(CLI::App& program) {
  const auto system = std::make_shared<std::string>(kThisSystem);
  CLI::App* app = program.add_subcommand("probe", "Answer mccl doctor and mccl config");
  app->group("");
  app->footer(kFooter);
  add_value(*app, "--system NAME", *system,
            "How to query this system: linux reads its files; macos runs its\nprograms "
            "(tests replay their recorded output). Default: the running system",
            one_of({"linux", "macos"}));
  return {app, [system] { return run_probe(*system == "macos"); }};
}

}  // namespace mccl::cli::probe
