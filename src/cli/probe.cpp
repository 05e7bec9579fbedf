#include "cli/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "base/value_text.h"
#include "cli/probe/answers.h"
#include "cli/probe/dial.h"
#include "cli/probe/listeners.h"
#include "cli/probe/packets.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

using namespace probe;

constexpr const char* kFooter =
    R"(Reads commands, a line each, and prints what comes out; ends with its input. It is started by
mccl doctor and mccl config, on each host, and is of no use by hand.
  listen PORT...                        listening PORT... PACKET-PORT
  call NAME                             called; heard INTERFACE NAME INTERFACE-THERE, of others'
  dial ID SOURCE ADDRESS PORT           dialled ID good SOURCE SECONDS, or dialled ID bad WHY
  packet ID SOURCE ADDRESS PORT BYTES   packet ID good, or packet ID lost
  time ID SOURCE ADDRESS PORT SECONDS   timed ID LATENCY BYTES-PER-SECOND
SOURCE is - for any.)";

constexpr std::size_t kMostThreads = 512;
constexpr double kLongest = 10;

/// "ID SOURCE ADDRESS PORT" of a command.
struct Target {
  std::string id;
  std::optional<Address> source;
  Address to;

  const Address* from() const { return source ? &*source : nullptr; }
};

std::uint16_t port_in(std::istream& words) {
  std::string word;
  words >> word;
  const auto port = parse_integer(word);
  if (!port || *port < 1 || *port > 65535)
    throw InvalidArgument(fmt::format("{} is no port", in_quotes(word)));
  return static_cast<std::uint16_t>(*port);
}

Address address_in(std::istream& words, const std::string& word) {
  const auto address = Address::parse_numeric(word, port_in(words));
  if (!address) throw InvalidArgument(fmt::format("{} is no address", in_quotes(word)));
  return *address;
}

Target target_in(std::istream& words) {
  Target target;
  std::string source;
  std::string address;
  words >> target.id >> source >> address;
  target.to = address_in(words, address);
  if (source != "-") target.source = Address::parse_numeric(source, 0);
  return target;
}

class Probe {
 public:
  explicit Probe(std::string key) : key_(std::move(key)) {}
  ~Probe() {
    for (std::thread& thread : threads_) thread.join();
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "listen") listen(words);
    if (command == "call") {
      std::string name;
      words >> name;
      start([this, name] {
        call(key_, name);
        answers_.say("called");
      });
    }
    if (command == "dial") start([this, target = target_in(words)] { tell_dialled(target); });
    if (command == "packet") {
      const Target target = target_in(words);
      int bytes = 0;
      words >> bytes;
      start([this, target, bytes] {
        const bool good = packet_arrives(key_, target.to, target.from(), bytes);
        answers_.say(fmt::format("packet {} {}", target.id, good ? "good" : "lost"));
      });
    }
    if (command == "time") {
      const Target target = target_in(words);
      double seconds = 0;
      words >> seconds;
      start([this, target, seconds] { tell_timed(target, std::min(seconds, kLongest)); });
    }
  }

 private:
  void start(std::function<void()> body) {
    if (threads_.size() == kMostThreads) {
      for (std::thread& thread : threads_) thread.join();
      threads_.clear();
    }
    threads_.push_back(start_thread("mccl-probe", std::move(body)));
  }

  void listen(std::istream& words) {
    std::vector<std::uint16_t> ports;
    while (words >> std::ws && !words.eof()) ports.push_back(port_in(words));
    listeners_.emplace(key_, ports);
    echo_.emplace(key_, answers_);
    answers_.say(
        fmt::format("listening {} {}", fmt::join(listeners_->ports(), " "), echo_->port()));
  }

  void tell_dialled(const Target& target) {
    const Reached reached = dial(key_, target.to, target.from());
    answers_.say(reached.good ? fmt::format("dialled {} good {} {:.6f}", target.id, reached.local,
                                            reached.seconds)
                              : fmt::format("dialled {} bad {}", target.id, reached.why));
  }

  void tell_timed(const Target& target, double seconds) {
    const Timed timed = time_link(key_, target.to, target.from(), seconds);
    answers_.say(
        fmt::format("timed {} {:.9f} {:.0f}", target.id, timed.latency_s, timed.bytes_per_s));
  }

  const std::string key_;
  Answers answers_;
  std::optional<Listeners> listeners_;
  std::optional<PacketEcho> echo_;
  std::vector<std::thread> threads_;
};

/// The key comes first, so that it is on no command line.
int run_probe() {
  std::string line;
  if (!std::getline(std::cin, line) || line.size() < 16)
    throw InvalidArgument("expected a key of 16 characters at least in the first line");
  Probe probe(line);
  while (std::getline(std::cin, line)) probe.obey(line);
  return kGood;
}

}  // namespace

Command add_probe(CLI::App& program) {
  CLI::App* app = program.add_subcommand("probe", "Answer mccl doctor and mccl config");
  app->group("");
  app->footer(kFooter);
  return {app, [] { return run_probe(); }};
}

}  // namespace mccl::cli
