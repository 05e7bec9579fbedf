#include "cli/kit/dialogue.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

namespace mccl::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kForEnd = 1s;

constexpr std::size_t kLeastSpace = std::size_t{64} << 10;
constexpr std::size_t kUsualSpace = std::size_t{256} << 10;
constexpr std::size_t kLongestCharacter = 4;
constexpr std::size_t kMostComplaint = 8192;

/// Applies to a program that has closed its output but has not ended.
constexpr auto kBetweenChecks = 20ms;

/// A program that the destructor kills if it still runs.
struct Running {
  ChildProcess process;
  bool over = false;

  ~Running() {
    if (over) return;
    signal(SIGKILL);
    ::waitpid(process.id, nullptr, 0);
  }
  /// Signals the process as well as its process group, because the group may not exist yet.
  void signal(int number) const {
    ::kill(process.id, number);
    ::kill(-process.id, number);
  }
};

}  // namespace

std::size_t whole_characters(std::string_view text) {
  const std::size_t most = std::min(text.size(), kLongestCharacter - 1);
  for (std::size_t back = 1; back <= most; ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    // Number of bytes of the character that begins with `c`; 1 for a later byte of a character.
    const auto length = static_cast<std::size_t>(std::countl_one(c));
    if (length == 1) continue;
    return length > back && length <= kLongestCharacter ? text.size() - back : text.size();
  }
  return text.size();
}

std::span<char> Lines::space() {
  if (begin_ > 0) {
    std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (bytes_.size() - end_ < kLeastSpace) bytes_.resize(std::max(2 * end_, kUsualSpace));
  return std::span(bytes_).subspan(end_);
}

std::string_view Lines::take(std::size_t bytes) {
  const std::string_view taken = rest().substr(0, bytes);
  begin_ += taken.size();
  searched_ = 0;
  return taken;
}

std::string_view Lines::take_lines() {
  const std::string_view unsearched = rest().substr(searched_);
  const std::size_t last = unsearched.rfind('\n');
  if (last != std::string_view::npos) {
    const std::string_view taken = take(searched_ + last + 1);
    searched_ = rest().size();
    return taken;
  }
  searched_ = rest().size();
  return searched_ < kLongest ? std::string_view() : take_characters();
}

std::string_view Lines::take_characters() { return take(whole_characters(rest())); }

std::string_view Lines::take_rest() { return take(rest().size()); }

void append_with_prefix(std::string& to, std::string_view prefix, std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t length = std::min(lines.find('\n'), lines.size() - 1) + 1;
    to.append(prefix).append(lines.substr(0, length));
    lines.remove_prefix(length);
  }
}

Dialogue::~Dialogue() {
  if (process_.id < 0) return;
  process_.input.close();
  ::kill(-process_.id, SIGTERM);
  const Clock::time_point limit = Clock::now() + kForEnd;
  bool over = false;
  while (!(over = reap(process_.id).has_value()) && Clock::now() < limit)
    std::this_thread::sleep_for(5ms);
  if (!over) {
    ::kill(-process_.id, SIGKILL);
    ::waitpid(process_.id, nullptr, 0);
  }
  forget_process();
}

void Dialogue::begin() {
  ++tries_;
  said_ = {};
  complaint_.clear();
  unsent_ = unheard_;
  process_ = start_();
  state_ = State::started;
}

void Dialogue::watch(Watch& watch, const std::vector<std::string>& machines) {
  if (state_ == State::waiting && Clock::now() < next_try_) {
    watch.at(next_try_);
  } else if (state_ == State::waiting && logins_ == nullptr) {
    begin();
  } else if (state_ == State::waiting && !machines.empty() && logins_->begin(machines)) {
    turn_ = machines;
    begin();
  }
  if (process_.output) watch.on(process_.output.get(), POLLIN, [this] { read(); });
  if (process_.error) watch.on(process_.error.get(), POLLIN, [this] { read_error(); });
  if (process_.input && (has_unsent() || no_more_))
    watch.on(process_.input.get(), POLLOUT, [this] { send(); });
}

void Dialogue::send(std::string_view text) {
  if (state_ != State::open) unheard_ += text;
  unsent_ += text;
  send();
}

void Dialogue::end_input() {
  no_more_ = true;
  send();
}

void Dialogue::send() {
  if (!process_.input) return;
  if (!unsent_.empty()) {
    const ssize_t n = ::write(process_.input.get(), unsent_.data(), unsent_.size());
    if (n > 0) unsent_.erase(0, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) unsent_.clear();
  }
  if (no_more_ && unsent_.empty()) process_.input.close();
}

bool Dialogue::read() {
  const std::span<char> space = said_.space();
  const ssize_t n = read_some(process_.output.get(), space.data(), space.size());
  if (n < 0) return false;
  said_.filled(static_cast<std::size_t>(n));
  if (n == 0) process_.output.close();
  std::string_view lines = n == 0 ? said_.take_rest() : said_.take_lines();
  while (!lines.empty()) {
    if (state_ == State::started) state_ = State::open;
    unheard_.clear();
    give_turn_back();
    const std::size_t end = lines.find('\n');
    hear_(lines.substr(0, end));
    lines.remove_prefix(end == lines.npos ? lines.size() : end + 1);
  }
  return n > 0;
}

void Dialogue::read_error() {
  std::array<char, 4096> bytes;
  const ssize_t n = read_some(process_.error.get(), bytes.data(), bytes.size());
  if (n == 0) process_.error.close();
  if (n > 0 && complaint_.size() < kMostComplaint)
    complaint_.append(bytes.data(), static_cast<std::size_t>(n));
}

bool Dialogue::collect() {
  if (process_.id < 0 || !reap(process_.id)) return false;
  for (std::size_t before = kMostComplaint + 1; process_.error && complaint_.size() != before;) {
    before = complaint_.size();
    read_error();
  }
  while (read()) {
  }
  const auto pause = state_ == State::started && !is_ending_
                         ? pause_before_login(tries_, complaint_)
                         : std::nullopt;
  give_turn_back();
  forget_process();
  state_ = pause ? State::waiting : State::ended;
  if (pause) next_try_ = Clock::now() + *pause;
  return !pause;
}

void Dialogue::end(int signal) {
  if (state_ == State::waiting) state_ = State::ended;
  if (ended()) return;
  is_ending_ = true;
  ::kill(process_.id, signal);
}

void Dialogue::give_turn_back() {
  if (!turn_.empty()) logins_->end(std::exchange(turn_, {}));
}

void Dialogue::forget_process() {
  const pid_t gone = std::exchange(process_, {}).id;
  if (reaped_) reaped_(gone);
}

Captured capture(const ProcessPlan& plan, const CaptureLimits& limits, bool with_errors,
                 Signals* signals) {
  Running running{start_process(plan)};
  ChildProcess& process = running.process;
  process.input.close();
  Captured captured;
  const auto read = [&](Descriptor& stream, bool keep) {
    std::array<char, 1 << 16> bytes;
    const ssize_t n = read_some(stream.get(), bytes.data(), bytes.size());
    if (n == 0) stream.close();
    if (n <= 0 || !keep) return;
    captured.output.append(bytes.data(), static_cast<std::size_t>(n));
    if (captured.output.size() > limits.bytes)
      captured.output.erase(0, captured.output.size() - limits.bytes);
  };
  Clock::time_point limit = limits.time;
  for (;;) {
    const bool closed = !process.output && (!process.error || !with_errors);
    if (const auto exit = closed ? reap(process.id) : std::nullopt) {
      running.over = true;
      captured.status = exit->status;
      return captured;
    }
    Watch watch;
    if (process.output) watch.on(process.output.get(), POLLIN, [&] { read(process.output, true); });
    if (process.error)
      watch.on(process.error.get(), POLLIN, [&] { read(process.error, with_errors); });
    if (signals != nullptr) watch.on(signals->descriptor(), POLLIN, [&] { signals->heed(); });
    watch.at(closed ? std::min(limit, Clock::now() + kBetweenChecks) : limit);
    watch.wait();
    if (Clock::now() < limit) continue;
    const bool again = captured.late || limits.grace == 0s;
    running.signal(again ? SIGKILL : SIGTERM);
    if (again) {
      // Another process that the program has started may keep the streams open, so their end is
      // not awaited.
      process.output.close();
      process.error.close();
    }
    captured.late = true;
    limit = Clock::now() + std::max<Clock::duration>(limits.grace, kBetweenChecks);
  }
}

}  // namespace mccl::cli
