// `mccl probe`: executes the requests of mccl doctor and mccl config on this host.
#include <fmt/format.h>

#include <cerrno>
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
#include "cli/command.h"
#include "cli/probe/connections.h"
#include "cli/probe/gather.h"
#include "cli/probe/packets.h"
#include "cli/probe/protocol.h"
#include "cluster/read_facts.h"
#include "mccl/error.h"

namespace mccl::cli::probe {
namespace {

using nlohmann::json;
constexpr std::size_t kMostThreads = 512;

/// Falls back to any free port.
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

/// Executes requests, and writes the answers to standard output.
class Agent {
 public:
  /// See gather().
  explicit Agent(bool as_macos) : as_macos_(as_macos) {}
  ~Agent() {
    for (std::thread& thread : threads_) thread.join();
  }

  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Requests that test a connection are answered later, in any order. Throws InvalidArgument for a
  /// second "listen", and for an earlier request that needs it.
  void obey(const ProbeRequest& request) {
    if (request.kind == "tell") describe_host(request);
    if (request.kind == "listen") listen(request);
    if (request.kind == "call") call(request);
    if (request.kind == "dial")
      test("dialled", request, [this](const Target& target) -> json {
        const std::string why = dial(secret(), target.to, target.from());
        return {{"good", why.empty()}, {"why", why}};
      });
    if (request.kind == "packet")
      test("packet", request, [this, bytes = request.bytes](const Target& target) -> json {
        return {{"good", packet_arrives(secret(), target.to, target.from(), bytes)}};
      });
    if (request.kind == "time")
      test("timed", request, [this, s = request.seconds](const Target& target) -> json {
        const Timed timed = time_link(secret(), target.to, target.from(), s);
        return {{"latency_s", timed.latency_s}, {"bytes_per_s", timed.bytes_per_s}};
      });
  }

 private:
  const Secret& secret() const {
    if (!secret_)
      throw InvalidArgument(
          "mccl probe has no key yet: the request \"listen\", which contains the key, must come "
          "first");
    return *secret_;
  }

  /// Thread-safe: lines are never mixed.
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

  /// Runs a connection test on a thread of its own.
  void test(const char* kind, const ProbeRequest& request,
            std::function<nlohmann::json(const Target&)> run) {
    secret();
    start([this, kind, target = request.target.value(), run = std::move(run)] {
      json answer = run(target);
      answer["id"] = target.id;
      say({{kind, answer}});
    });
  }

  void describe_host(const ProbeRequest& request) {
    // The clock is read before anything that takes time, because the caller compares the clock with
    // the time of its request.
    say({{"mccl", MCCL_VERSION}, {"protocol", kProtocol}, {"clock", now_in_epoch()}});
    const auto busy = [this](const std::string& program) { say({{"busy", program}}); };
    say({{"told", json_of(gather(request.python, request.patience, as_macos_, busy))}});
  }

  void listen(const ProbeRequest& request) {
    if (secret_) throw InvalidArgument("mccl probe is already listening");
    // The limit of open files is raised only now, because describe_host() must report the limit
    // with which a job starts.
    raise_open_files_limit();
    secret_.emplace(request.key);
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

  void call(const ProbeRequest& request) {
    secret();
    start([this, name = request.name] {
      calls_->call(fmt::format("{:.0f}", name));
      say({{"called", true}});
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
    agent->obey(parse_request(parse_json(line, "standard input of mccl probe", "a request")));
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
