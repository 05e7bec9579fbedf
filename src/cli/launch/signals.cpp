#include "cli/launch/signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "cli/launch/process.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
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

Signals::Signals() {
  static_assert(kSignals == kGathered.size() + kIgnored.size());
  gathered = make_pipe();
  for (const int end : {gathered.reader.get(), gathered.writer.get()})
    ::fcntl(end, F_SETFL, O_NONBLOCK);
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

}  // namespace mccl::cli::launch
