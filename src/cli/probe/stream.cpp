#include "cli/probe/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/would_block.h"

namespace mccl::cli::probe {
namespace {

constexpr std::size_t kLongestLine = 200;

}  // namespace

Stream::Stream(Socket socket, std::chrono::milliseconds patience)
    : socket_(std::move(socket)), patience_(patience) {
  const int descriptor = socket_.descriptor();
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  timeval time = {};
  time.tv_sec = static_cast<decltype(time.tv_sec)>(patience.count() / 1000);
  time.tv_usec = static_cast<decltype(time.tv_usec)>(patience.count() % 1000 * 1000);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(descriptor, SOL_SOCKET, option, &time, sizeof time);
}

bool Stream::write(const void* from, std::size_t bytes) {
  const char* at = static_cast<const char*>(from);
  const Clock::time_point limit = Clock::now() + patience_;
  while (bytes > 0) {
    const ssize_t n = ::send(socket_.descriptor(), at, bytes, kNoSignal);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && lacks_memory(errno) && Clock::now() < limit) {
      nap_if_memory_is_short(errno);
      continue;
    }
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

std::size_t Stream::read(void* to, std::size_t most) {
  ssize_t n = 0;
  do {
    n = ::recv(socket_.descriptor(), to, most, 0);
  } while (n < 0 && errno == EINTR);
  timed_out_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::optional<std::string> Stream::read_line() {
  const Clock::time_point limit = Clock::now() + patience_;
  std::string line;
  char next = 0;
  while (line.size() < kLongestLine && read(&next, 1) == 1) {
    if (next == '\n') return line;
    line += next;
    // The time limit applies to the whole line, so single bytes do not extend it.
    timed_out_ = Clock::now() >= limit;
    if (timed_out_) return {};
  }
  return {};
}

void Stream::shut() { ::shutdown(socket_.descriptor(), SHUT_RDWR); }

void Stream::end_writing() { ::shutdown(socket_.descriptor(), SHUT_WR); }

Connected connect(const Address& to, const Address* source, std::chrono::milliseconds patience) {
  Connected result;
  Socket socket = Socket::stream(to.family());
  const Clock::time_point begin = Clock::now();
  result.error = transport::tcp::start_connect(socket, to, source);
  if (result.error == EINPROGRESS) {
    pollfd waiting = {socket.descriptor(), POLLOUT, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(patience.count()));
    result.error = ready > 0 ? socket.take_error() : ETIMEDOUT;
  }
  result.seconds = seconds_between(begin, Clock::now());
  if (result.error != 0) return result;
  transport::tcp::tune_stream(socket);
  result.stream.emplace(std::move(socket), patience);
  return result;
}

}  // namespace mccl::cli::probe
