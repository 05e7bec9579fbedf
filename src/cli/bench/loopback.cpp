#include "cli/bench/loopback.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/would_block.h"
#include "cli/bench/agree.h"
#include "cli/bench/timing.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::bench {
namespace {

using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr std::size_t kWrite = std::size_t{1} << 20;
constexpr std::size_t kStream = std::size_t{64} << 20;
constexpr int kStreams = 3;
constexpr std::size_t kPing = 8;
constexpr int kPings = 250;  ///< Round trips in one batch.
constexpr int kBatches = 9;
constexpr int kPatienceMs = 30'000;
/// Seconds of polling before sleep, the same as in the engine.
constexpr double kSpin = 50e-6;

[[noreturn]] void fail(const std::string& what) {
  throw PeerError(fmt::format(
      "cannot measure the upper bound with plain sockets: {}; use --no-bounds to skip this "
      "measurement",
      what));
}

void await(const Socket& socket, short events) {
  pollfd entry{socket.descriptor(), events, 0};
  const int ready = ::poll(&entry, 1, kPatienceMs);
  if (ready == 0) fail("the other process does not answer");
  if (ready < 0 && errno != EINTR) fail(transport::tcp::describe_errno(errno));
}

std::size_t try_send(const Socket& socket, const std::byte* from, std::size_t limit) {
  const ssize_t n = ::send(socket.descriptor(), from, limit, kNoSignal);
  if (n < 0 && !would_block(errno)) fail(transport::tcp::describe_errno(errno));
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::size_t try_receive(const Socket& socket, std::byte* to, std::size_t limit) {
  const ssize_t n = ::recv(socket.descriptor(), to, limit, 0);
  if (n == 0) fail("the other process closed the connection");
  if (n < 0 && !would_block(errno)) fail(transport::tcp::describe_errno(errno));
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

/// Sends and receives these numbers of bytes, in whichever direction is ready.
void exchange(const Socket& socket, std::vector<std::byte>& from, std::vector<std::byte>& to,
              std::size_t to_send, std::size_t to_receive) {
  while (to_send > 0 || to_receive > 0) {
    std::size_t moved = 0;
    if (to_send > 0) {
      const std::size_t sent = try_send(socket, from.data(), std::min(to_send, from.size()));
      to_send -= sent;
      moved += sent;
    }
    if (to_receive > 0) {
      const std::size_t got = try_receive(socket, to.data(), std::min(to_receive, to.size()));
      to_receive -= got;
      moved += got;
    }
    if (moved == 0) {
      await(socket,
            static_cast<short>((to_send > 0 ? POLLOUT : 0) | (to_receive > 0 ? POLLIN : 0)));
    }
  }
}

/// Receives `bytes` bytes. Polls for a while before it sleeps. It does not poll on a single core,
/// because that would keep the other process from running.
void receive_soon(const Socket& socket, std::byte* to, std::size_t bytes) {
  const bool may_spin = std::thread::hardware_concurrency() > 1;
  const Clock::time_point begin = Clock::now();
  while (bytes > 0) {
    const std::size_t got = try_receive(socket, to, bytes);
    bytes -= got;
    to += got;
    if (got > 0) continue;
    if (!may_spin || seconds_between(begin, Clock::now()) > kSpin) {
      await(socket, POLLIN);
    } else {
      std::this_thread::yield();
    }
  }
}

Socket accept_one(Listener& listener) {
  for (;;) {
    transport::tcp::Accepted accepted = listener.accept();
    if (accepted.socket) return std::move(accepted.socket);
    if (accepted.error != 0) fail(transport::tcp::describe_errno(accepted.error));
    pollfd entry{listener.descriptor(), POLLIN, 0};
    if (::poll(&entry, 1, kPatienceMs) == 0) fail("the other process does not connect");
  }
}

Socket connect_to(std::uint16_t port) {
  Socket socket = Socket::stream(AF_INET);
  int error =
      transport::tcp::start_connect(socket, *Address::parse_numeric("127.0.0.1", port), nullptr);
  if (error == EINPROGRESS) {
    await(socket, POLLOUT);
    error = socket.take_error();
  }
  if (error != 0) fail(transport::tcp::describe_errno(error));
  return socket;
}

/// Returns a connection between ranks 0 and 1; empty on the others.
Socket join(Group& group) {
  Socket socket;
  if (group.rank() == 0) {
    Listener listener(*Address::parse_numeric("127.0.0.1", 0), 0);
    value_of_first(group, listener.address().port());
    socket = accept_one(listener);
  } else {
    const std::uint64_t port = value_of_first(group, 0);
    if (group.rank() == 1) socket = connect_to(static_cast<std::uint16_t>(port));
  }
  if (socket) transport::tcp::tune_stream(socket);
  return socket;
}

/// Returns the lowest median of several batches. If the scheduler runs both processes on one core
/// during a batch, that batch has a high median, which is thus ignored.
double round_trip_us(const Socket& socket, bool first) {
  std::byte ping[kPing] = {};
  std::vector<double> medians;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<double> samples(kPings);
    for (double& sample : samples) {
      const Clock::time_point begin = Clock::now();
      if (first && try_send(socket, ping, kPing) != kPing)
        fail("a send of 8 bytes on a local TCP connection was incomplete");
      receive_soon(socket, ping, kPing);
      if (!first && try_send(socket, ping, kPing) != kPing)
        fail("a send of 8 bytes on a local TCP connection was incomplete");
      sample = seconds_between(begin, Clock::now()) * 1e6;
    }
    medians.push_back(percentile(samples, 0.5));
  }
  return percentile(medians, 0);
}

/// Returns the rate of a stream in GB/s. If `both` is true, this is the rate of each direction.
double stream_gbs(const Socket& socket, bool first, bool both) {
  std::vector<std::byte> from(kWrite);
  std::vector<std::byte> to(kWrite);
  std::byte go[1] = {};
  std::vector<double> rates;
  for (int i = 0; i < kStreams; ++i) {
    // Both begin together, and end when the last byte has arrived at both.
    exchange(socket, from, to, 1, 1);
    const Clock::time_point begin = Clock::now();
    exchange(socket, from, to, first || both ? kStream : 0, !first || both ? kStream : 0);
    if (first) receive_soon(socket, go, 1);
    rates.push_back(kStream / seconds_between(begin, Clock::now()) / 1e9);
    if (!first) exchange(socket, from, to, 1, 0);
  }
  return percentile(rates, 0.5);
}

}  // namespace

Loopback measure_loopback(Group& group) {
  const Socket socket = join(group);
  Loopback result;
  if (socket) {
    const bool first = group.rank() == 0;
    result.round_trip_us = round_trip_us(socket, first);
    result.one_way_gbs = stream_gbs(socket, first, false);
    result.both_ways_gbs = stream_gbs(socket, first, true);
  }
  meet(group);
  return result;
}

}  // namespace mccl::cli::bench
