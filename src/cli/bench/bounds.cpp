#include "cli/bench/bounds.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/would_block.h"
#include "cli/bench/trial.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::bench {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 20;
/// Maximum total size of all ranks' buffers, in bytes: with more than 16 ranks, each buffer is
/// smaller than kBuffer, but it is at least 4 * kStage, even if the total is then exceeded.
constexpr std::size_t kAllBuffers = std::size_t{1} << 30;
/// Size of the buffer through which each process copies its data, in bytes. It fits easily into a
/// core's second-level cache.
constexpr std::size_t kStage = std::size_t{256} << 10;
constexpr int kRepetitions = 5;

std::size_t buffer_bytes(int ranks) {
  const std::size_t share = kAllBuffers / static_cast<std::size_t>(ranks) / kStage * kStage;
  return std::clamp(share, 4 * kStage, kBuffer);
}

/// Runs `work`, which processes `bytes` bytes, at the same time on all ranks for which `takes_part`
/// is true. Returns the rate of the slowest of these ranks in GB/s, as the median of kRepetitions
/// runs.
double rate_gbs(Group& group, bool takes_part, std::size_t bytes,
                const std::function<void()>& work) {
  if (takes_part) work();
  std::vector<double> rates;
  for (int i = 0; i < kRepetitions; ++i) {
    meet(group);
    const Clock::time_point begin = Clock::now();
    if (takes_part) work();
    const double took = takes_part ? seconds_between(begin, Clock::now()) : 0;
    rates.push_back(static_cast<double>(bytes) / largest(group, took) / 1e9);
  }
  return percentile(rates, 0.5);
}

void pass(std::span<std::byte> buffer, std::span<std::byte> stage) {
  for (; !buffer.empty(); buffer = buffer.subspan(stage.size())) {
    std::memcpy(stage.data(), buffer.data(), stage.size());
    // If no byte changed, the compiler might omit the copy back.
    *reinterpret_cast<volatile std::byte*>(stage.data()) = std::byte{1};
    std::memcpy(buffer.data(), stage.data(), stage.size());
  }
}

using transport::tcp::Address;
using transport::tcp::Listener;
using transport::tcp::Socket;

constexpr std::size_t kWrite = std::size_t{1} << 20;
constexpr std::size_t kStream = std::size_t{64} << 20;
constexpr int kStreams = 3;
constexpr std::size_t kPing = 8;
constexpr int kPings = 250;  ///< Number of round trips in one batch.
constexpr int kBatches = 9;
constexpr int kPatienceMs = 30'000;
/// Time to poll before sleeping, in seconds: the default of Config::spin_us.
constexpr double kSpin = 200e-6;

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

/// Sends `to_send` bytes and receives `to_receive` bytes, both at the same time.
void exchange(const Socket& socket, std::vector<std::byte>& from, std::vector<std::byte>& to,
              std::size_t to_send, std::size_t to_receive) {
  while (to_send > 0 || to_receive > 0) {
    std::size_t sent = 0;
    std::size_t got = 0;
    if (to_send > 0) sent = try_send(socket, from.data(), std::min(to_send, from.size()));
    if (to_receive > 0) got = try_receive(socket, to.data(), std::min(to_receive, to.size()));
    to_send -= sent;
    to_receive -= got;
    if (sent + got == 0)
      await(socket,
            static_cast<short>((to_send > 0 ? POLLOUT : 0) | (to_receive > 0 ? POLLIN : 0)));
  }
}

/// Receives `bytes` bytes. Polls for kSpin seconds before it sleeps. On a machine with a single
/// core it does not poll, because that would keep the sender from running.
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

/// Returns a connection between ranks 0 and 1; on all other ranks, returns an empty socket.
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

/// Returns the round-trip time: the lowest median of several batches, in microseconds. If the
/// scheduler runs both processes on one core during a batch, that batch has a high median, which is
/// ignored.
double round_trip_us(const Socket& socket, bool first) {
  std::byte ping[kPing] = {};
  const auto send = [&] {
    if (try_send(socket, ping, kPing) != kPing)
      fail("a send of 8 bytes on a local TCP connection was incomplete");
  };
  std::vector<double> medians;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<double> samples(kPings);
    for (double& sample : samples) {
      const Clock::time_point begin = Clock::now();
      if (first) send();
      receive_soon(socket, ping, kPing);
      if (!first) send();
      sample = seconds_between(begin, Clock::now()) * 1e6;
    }
    medians.push_back(percentile(samples, 0.5));
  }
  return percentile(medians, 0);
}

/// Returns the rate of a stream from rank 0 to rank 1, in GB/s. If `both` is true, streams run in
/// both directions, and the result is the rate in each direction.
double stream_gbs(const Socket& socket, bool first, bool both) {
  std::vector<std::byte> from(kWrite);
  std::vector<std::byte> to(kWrite);
  std::byte go[1] = {};
  std::vector<double> rates;
  for (int i = 0; i < kStreams; ++i) {
    // This exchange of one byte makes both ranks begin together. Rank 0 stops its clock when rank 1
    // has confirmed with one byte that all data arrived.
    exchange(socket, from, to, 1, 1);
    const Clock::time_point begin = Clock::now();
    exchange(socket, from, to, first || both ? kStream : 0, !first || both ? kStream : 0);
    if (first) receive_soon(socket, go, 1);
    rates.push_back(kStream / seconds_between(begin, Clock::now()) / 1e9);
    if (!first) exchange(socket, from, to, 1, 0);
  }
  return percentile(rates, 0.5);
}

/// Measures TCP on loopback between ranks 0 and 1. Every rank must call this, and the group must
/// have at least two ranks. Ranks other than 0 and 1 only wait. Only rank 0's result is valid.
/// Throws Error if the connection fails.
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

}  // namespace

std::string cpu_name() {
#ifdef __APPLE__
  std::array<char, 256> name = {};
  std::size_t size = name.size() - 1;
  if (::sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) == 0)
    return name.data();
#else
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
#endif
  utsname names = {};
  return ::uname(&names) == 0 ? names.machine : "unknown";
}

unsigned core_count() { return std::max(1U, std::thread::hardware_concurrency()); }

std::uint64_t memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0
             ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
             : 0;
}

Bounds measure_bounds(Group& group, bool one_host) {
  Bounds bounds;
  bounds.buffer_bytes = buffer_bytes(group.size());
  const Memory from(bounds.buffer_bytes);
  const Memory to(bounds.buffer_bytes);
  const Memory stage(kStage);
  std::memset(from.bytes().data(), 1, from.bytes().size());
  std::memset(to.bytes().data(), 2, to.bytes().size());
  const auto copy = [&] {
    std::memcpy(to.bytes().data(), from.bytes().data(), bounds.buffer_bytes);
  };
  bounds.copy_one_gbs = rate_gbs(group, group.rank() == 0, bounds.buffer_bytes, copy);
  bounds.copy_all_gbs = rate_gbs(group, true, bounds.buffer_bytes, copy);
  bounds.pass_all_gbs =
      rate_gbs(group, true, bounds.buffer_bytes, [&] { pass(from.bytes(), stage.bytes()); });
  if (one_host && group.size() > 1) bounds.loopback = measure_loopback(group);
  return bounds;
}

}  // namespace mccl::cli::bench
