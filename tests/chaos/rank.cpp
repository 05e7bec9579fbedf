// One rank of a trial of chaos.py, in C++: the same life as that of a rank of rank.py, which
// describes it. cpp.py compiles this program and writes the scenario that it reads.
//
//   rank SCENARIO RANK SAY HEAR ROOT
//
// SCENARIO is a file. SAY and HEAR are descriptors of pipes or paths of FIFOs. ROOT is the address
// of rank 0, the hostfile of a job along cables, or empty if MPI connects the ranks.
#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "calls.h"
#include "mccl/mccl.h"

namespace chaos {
namespace {

/// Texts longer than this could be torn apart in a pipe.
constexpr std::size_t kLongest = 1500;
constexpr char kRecover = 'r';
constexpr auto kGroupTimeout = std::chrono::seconds(120);
constexpr auto kShrinkTimeout = std::chrono::seconds(15);
constexpr std::size_t kLargestAfterShrink = std::size_t{1} << 16;

/// A scenario, as cpp.py writes it: lines of a name and its values.
struct Scenario {
  std::vector<std::pair<std::string, std::string>> settings;
  std::map<std::string, std::string> facts;
  std::map<int, std::vector<Call>> calls;  ///< The calls of each step.
  std::map<int, std::vector<Call>> rest;   ///< The calls of the group that shrink() makes.
  Call other;                              ///< The call that the victim makes if calls differ.

  explicit Scenario(const std::string& path) {
    std::ifstream file(path);
    for (std::string text; std::getline(file, text);) {
      std::istringstream line(text);
      std::string name;
      line >> name;
      int step = 0;
      if (name == "setting") {
        std::string setting, value;
        line >> setting >> value;
        settings.emplace_back(setting, value);
      } else if (name == "call" || name == "rest") {
        line >> step;
        (name == "call" ? calls : rest)[step].push_back(Call::from(line));
      } else if (name == "other") {
        other = Call::from(line);
      } else {
        line >> facts[name];
      }
    }
    if (calls.empty()) throw std::runtime_error(path + " contains no calls");
  }

  const std::string& text(const std::string& name) const { return facts.at(name); }
  int number(const std::string& name) const { return std::stoi(facts.at(name)); }
  double seconds(const std::string& name) const { return std::stod(facts.at(name)); }

  /// The calls of a step. A program without an end repeats those of the first steps.
  const std::vector<Call>& of_step(int step) const {
    return calls.at(step % static_cast<int>(calls.size()));
  }
};

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char each : text.substr(0, kLongest)) {
    if (each == '"' || each == '\\') result += '\\';
    result += each >= ' ' && each <= '~' ? each : ' ';
  }
  return result + '"';
}

std::string kind_of(const mccl::Error& error) {
  if (dynamic_cast<const mccl::InvalidArgument*>(&error)) return "InvalidArgument";
  if (dynamic_cast<const mccl::TimeoutError*>(&error)) return "TimeoutError";
  if (dynamic_cast<const mccl::PeerError*>(&error)) return "PeerError";
  if (dynamic_cast<const mccl::MismatchError*>(&error)) return "MismatchError";
  if (dynamic_cast<const mccl::AbortedError*>(&error)) return "AbortedError";
  if (dynamic_cast<const mccl::CorruptionError*>(&error)) return "CorruptionError";
  return "Error";
}

/// Seconds of the clock of Python's time.monotonic().
double now() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void show_stack(int) {
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), STDERR_FILENO);
}

class Rank {
 public:
  Rank(Scenario scenario, int rank, int say, int hear)
      : scenario_(std::move(scenario)), rank_(rank), say_(say), hear_(hear) {}

  /// Runs all phases.
  void live(const std::string& root) {
    if (meet(root)) {
      run();
      while (hear() == kRecover) recover();
    } else {
      hear();
    }
    if (context_) context_->shutdown();
    say("left");
    // After a failure, MPI_Finalize() would wait for the dead rank.
    if (root.empty() && world_ && !world_->failure().empty()) ::_exit(0);
  }

  void say(const std::string& event, const std::string& facts = "") const {
    char time[32];
    std::snprintf(time, sizeof time, "%.9f", now());
    const std::string line = "{\"event\": " + quoted(event) +
                             ", \"rank\": " + std::to_string(rank_) + ", \"at\": " + time + facts +
                             "}\n";
    if (::write(say_, line.data(), line.size()) < 0) ::_exit(71);
  }

 private:
  bool is_victim() const { return rank_ == scenario_.number("victim"); }
  bool is_compared() const { return scenario_.number("compared") != 0; }
  bool fault_is(const char* name) const { return scenario_.text("fault") == name; }
  bool moment_is(const char* name) const { return scenario_.text("moment") == name; }

  char hear() const {
    char byte = 0;
    return ::read(hear_, &byte, 1) == 1 ? byte : '\0';
  }

  void tell(const std::string& event, const std::string& kind, const std::string& text) const {
    say(event, ", \"kind\": " + quoted(kind) + ", \"text\": " + quoted(text));
  }

  bool meet(const std::string& root) {
    if (is_victim() && moment_is("MEETING") && !fault_is("SHM"))
      strike_later(10 * scenario_.seconds("delay"));
    mccl::Config config;
    for (const auto& [name, value] : scenario_.settings) config.set(name, value);
    if (!root.empty()) {
      config.set("rank", std::to_string(rank_));
      config.set("world_size", scenario_.text("size"));
      config.set("port_base", "0");
      config.set(scenario_.number("cabled") != 0 ? "hostfile" : "root", root);
    }
    try {
      context_ = mccl::Context::from_environment(config);
      world_ = context_->world();
    } catch (const mccl::Error& error) {
      tell("error", kind_of(error), error.what());
      return false;
    }
    say("met");
    return true;
  }

  void run() {
    const int steps = scenario_.number("steps");  // 0 if the program has no end
    try {
      for (int number = 0; steps == 0 || number < steps; ++number) step(number);
    } catch (const mccl::Error& error) {
      give_files_back();
      tell("error", kind_of(error), error.what());
      // Others may wait for this rank, which makes no more calls.
      if (world_->failure().empty()) world_->abort(error.what());
      return;
    }
    give_files_back();
    say("done");
  }

  void step(int number) {
    const std::vector<Call>& calls = scenario_.of_step(number);
    const bool here = number == scenario_.number("step") && !moment_is("MEETING");
    if (here && fault_is("MISMATCH")) return wrong_step(calls.front());
    const bool strikes = here && is_victim();
    if (strikes && moment_is("BETWEEN")) strike();
    if (strikes && moment_is("INSIDE")) strike_later(scenario_.seconds("delay"));
    // A new group needs descriptors.
    std::shared_ptr<mccl::Group> group = world_;
    if (here && scenario_.text("scene") == "group") group = new_group();
    const bool alone = calls.size() == 1 && !moment_is("FLIGHT");
    started_.clear();
    for (const Call& call : calls) {
      start(*group, call, alone);
      if (alone) started_.back()->wait();
    }
    if (strikes && moment_is("FLIGHT")) strike();
    for (std::size_t i = 0; i < started_.size(); ++i) {
      started_[i]->wait();
      check(*started_[i], number, i);
    }
  }

  std::shared_ptr<mccl::Group> new_group() {
    std::vector<int> members(static_cast<std::size_t>(world_->size()));
    std::iota(members.begin(), members.end(), 0);
    groups_.push_back(context_->group("chaos", members, kGroupTimeout));
    return groups_.back();
  }

  void start(mccl::Group& group, const Call& call, bool caller_waits) {
    started_.push_back(std::make_unique<Started>(group, call));
    started_.back()->start(group, caller_waits);
  }

  void wrong_step(const Call& call) {
    if (is_victim()) say("fault");
    started_.clear();
    start(*world_, is_victim() ? scenario_.other : call, true);
    started_.back()->wait();
    // A rank whose part is over may return, but not with data of other calls.
    const std::string text = started_.back()->fault(scenario_.seconds("rounding"));
    if (!text.empty() && is_compared())
      say("wrong", ", \"text\": " + quoted("the ranks' calls differ, yet " + text));
  }

  void check(const Started& started, int step, std::size_t place) const {
    const std::string text = started.fault(scenario_.seconds("rounding"));
    if (!text.empty() && is_compared()) say("wrong", ", \"text\": " + quoted(text));
    if (scenario_.number("digests") == 0 || started.digest() == 0) return;
    say("digest", ", \"place\": [" + std::to_string(step) + ", " + std::to_string(place) +
                      "], \"digest\": " + std::to_string(started.digest()) +
                      ", \"call\": " + quoted(started.call().text()));
  }

  void strike_later(double seconds) {
    std::thread([this, seconds] {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      strike();
    }).detach();
  }

  /// Commits the fault.
  void strike() {
    if (fault_is("NETWORK")) {
      say("ready");
      hear();
      return;
    }
    say("fault");
    if (fault_is("FILES")) {
      take_files();
    } else if (fault_is("KILL")) {
      ::kill(::getpid(), SIGKILL);
    } else if (fault_is("SEGV")) {
      const rlimit none = {};
      ::setrlimit(RLIMIT_CORE, &none);
      *reinterpret_cast<volatile char*>(std::strtoul("8", nullptr, 10)) = 0;
    } else if (fault_is("EXIT")) {
      ::_exit(3);
    } else if (fault_is("STOP") || fault_is("PAUSE")) {
      ::kill(::getpid(), SIGSTOP);
    } else if (fault_is("LEAVE")) {
      context_->shutdown();
      say("left");
      ::_exit(1);
    } else if (fault_is("ABORT")) {
      world_->abort("reason " + scenario_.text("seed"));
    }
  }

  /// Leaves a few descriptors to the process.
  void take_files() {
    ::getrlimit(RLIMIT_NOFILE, &files_limit_);
    const int next = ::open("/dev/null", O_RDONLY);
    const int spare = scenario_.number("spare");
    const rlimit fewer = {static_cast<rlim_t>(next + 1 + spare), files_limit_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &fewer);
    for (int file = next; file >= 0; file = ::open("/dev/null", O_RDONLY)) files_.push_back(file);
    for (int i = 0; i < spare && !files_.empty(); ++i) {
      ::close(files_.back());
      files_.pop_back();
    }
  }

  void give_files_back() {
    if (files_limit_.rlim_cur != 0) ::setrlimit(RLIMIT_NOFILE, &files_limit_);
    for (const int file : files_) ::close(file);
    files_.clear();
  }

  /// Goes on with the ranks that are left, if they can.
  void recover() {
    try {
      const std::shared_ptr<mccl::Group> rest = world_->shrink(kShrinkTimeout);
      for (const auto& [step, calls] : scenario_.rest) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          Call call = calls[i];
          call.root %= rest->size();
          call.shift %= rest->size();
          call.count = std::min(call.count, kLargestAfterShrink);
          if (call.kind == "message" && call.shift == 0) continue;
          start(*rest, call, true);
          started_.back()->wait();
          check(*started_.back(), step, i);
        }
      }
      say("recovered", ", \"size\": " + std::to_string(rest->size()));
    } catch (const mccl::Error& error) {
      tell("lost", kind_of(error), error.what());
    }
  }

  rlimit files_limit_ = {};  ///< The limit before the fault.
  const Scenario scenario_;
  const int rank_;
  const int say_, hear_;
  std::shared_ptr<mccl::Context> context_;
  std::shared_ptr<mccl::Group> world_;
  std::vector<std::shared_ptr<mccl::Group>> groups_;  ///< Kept, because a group's end is a fault.
  std::vector<int> files_;                            ///< Descriptors that the fault has taken.
  std::vector<std::unique_ptr<Started>> started_;     ///< Kept until they are certainly done.
};

int opened(const std::string& place, int flags) {
  return place.starts_with('/') ? ::open(place.c_str(), flags) : std::stoi(place);
}

int live(const std::vector<std::string>& words) {
  // Leaves the settings of the Python process that started this one.
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGUSR1, show_stack);
  Rank rank(Scenario(words.at(1)), std::stoi(words.at(2)), opened(words.at(3), O_WRONLY),
            opened(words.at(4), O_RDONLY));
  try {
    rank.live(words.at(5));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    rank.say("broken", ", \"kind\": \"exception\", \"text\": " + quoted(error.what()));
    ::_exit(70);
  }
  return 0;
}

}  // namespace
}  // namespace chaos

int main(int count, char** words) { return chaos::live({words, words + count}); }
