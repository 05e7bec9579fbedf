#include "cli/kit/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "cli/kit/process.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr std::array kGathered = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGCHLD, SIGWINCH};
constexpr std::array kIgnored = {SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU};

/// Pipe to which the signal handler writes. It is global, because the handler needs it.
Pipe gathered;
volatile std::sig_atomic_t gathered_writer = -1;

void gather(int number) {
  const int cause = errno;
  const auto byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t n = ::write(gathered_writer, &byte, 1);
  errno = cause;
}

}  // namespace

void Watch::on(int descriptor, short events, std::function<void()> then) {
  entries_.push_back({descriptor, events, 0});
  calls_.push_back(std::move(then));
}

void Watch::at(Clock::time_point time) { time_ = std::min(time, time_.value_or(time)); }

void Watch::wait() {
  int limit = -1;
  if (time_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*time_ - Clock::now());
    limit = static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 60'000));
  }
  const int ready = ::poll(entries_.data(), static_cast<nfds_t>(entries_.size()), limit);
  const std::vector<pollfd> entries = std::exchange(entries_, {});
  const std::vector<std::function<void()>> calls = std::exchange(calls_, {});
  time_.reset();
  for (std::size_t i = 0; ready > 0 && i < entries.size(); ++i)
    if (entries[i].revents != 0) calls[i]();
}

Signals::Signals() {
  static_assert(kSignals == kGathered.size() + kIgnored.size());
  gathered = make_pipe();
  for (const Descriptor* end : {&gathered.reader, &gathered.writer}) do_not_block(*end);
  gathered_writer = gathered.writer.get();
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  auto before = before_.begin();
  action.sa_handler = gather;
  for (const int number : kGathered) {
    ::sigaction(number, &action, &*before);
    if (number == SIGHUP && before->sa_handler == SIG_IGN) ::sigaction(number, &*before, nullptr);
    ++before;
  }
  action.sa_handler = SIG_IGN;
  for (const int number : kIgnored) ::sigaction(number, &action, &*before++);
}

Signals::~Signals() {
  auto before = before_.begin();
  for (const int number : kGathered) ::sigaction(number, &*before++, nullptr);
  for (const int number : kIgnored) ::sigaction(number, &*before++, nullptr);
  gathered = {};
}

int Signals::descriptor() const { return gathered.reader.get(); }

void Signals::heed(std::string_view consequence) {
  for (const int number : take())
    if (number != SIGCHLD && number != SIGWINCH)
      throw Error(fmt::format("signal {} ({}) ended the command{}", number, ::strsignal(number),
                              consequence));
}

std::vector<int> Signals::take() {
  std::array<char, 256> bytes = {};
  std::vector<int> numbers;
  for (ssize_t n = 0; (n = read_some(descriptor(), bytes.data(), bytes.size())) > 0;) {
    for (const char byte : std::span(bytes).first(static_cast<std::size_t>(n)))
      if (std::ranges::find(numbers, byte) == numbers.end()) numbers.push_back(byte);
  }
  return numbers;
}

}  // namespace mccl::cli
