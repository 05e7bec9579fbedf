#include "cli/bench/bounds.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include "base/clock.h"
#include "base/would_block.h"
#include "cli/bench/trial.h"
#include "cli/kit/quantity.h"
#include "cluster/text.h"
#include "kernels/reduce.h"
#include "kernels/unit.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::bench {
namespace {

constexpr std::size_t kBuffer = std::size_t{64} << 20;
/// Limits all ranks' buffers together: with many ranks, each is smaller, but at least 4 * kStage.
constexpr std::size_t kAllBuffers = std::size_t{1} << 30;
/// Fits easily into a core's second-level cache.
constexpr std::size_t kStage = std::size_t{256} << 10;
constexpr int kRepetitions = 5;

/// Returns the rate of the slowest rank that `takes_part`, in GB/s: the median of kRepetitions
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
  if (ready < 0 && errno != EINTR) fail(describe_errno(errno));
}

std::size_t moved(const transport::tcp::TransferResult& result) {
  if (result.error != 0 && !would_block(result.error)) fail(describe_errno(result.error));
  return result.bytes;
}

std::size_t try_receive(const Socket& socket, std::byte* to, std::size_t limit) {
  const transport::tcp::TransferResult result = socket.receive({to, limit});
  if (result.bytes == 0 && result.error == 0) fail("the other process closed the connection");
  return moved(result);
}

/// Sends and receives at the same time.
void exchange(const Socket& socket, std::vector<std::byte>& from, std::vector<std::byte>& to,
              std::size_t to_send, std::size_t to_receive) {
  while (to_send > 0 || to_receive > 0) {
    std::size_t sent = 0;
    std::size_t got = 0;
    if (to_send > 0)
      sent = moved(socket.send(std::span(from).first(std::min(to_send, from.size()))));
    if (to_receive > 0) got = try_receive(socket, to.data(), std::min(to_receive, to.size()));
    to_send -= sent;
    to_receive -= got;
    if (sent + got == 0)
      await(socket,
            static_cast<short>((to_send > 0 ? POLLOUT : 0) | (to_receive > 0 ? POLLIN : 0)));
  }
}

/// Polls for kSpin seconds before it sleeps, but not on a single core, which the sender needs.
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
    if (accepted.error != 0) fail(describe_errno(accepted.error));
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
  if (error != 0) fail(describe_errno(error));
  return socket;
}

/// Connects ranks 0 and 1; empty on all other ranks.
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

/// The lowest median of several batches. A batch in which both processes shared a core is slower.
double round_trip_us(const Socket& socket, bool first) {
  std::byte ping[kPing] = {};
  const auto send = [&] {
    if (moved(socket.send(ping)) != kPing)
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

/// From rank 0 to rank 1, or with `both` the rate in each direction of two streams.
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

/// Every rank must call this; ranks other than 0 and 1 only wait. Rank 0's result is valid.
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

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::size_t kSizes[] = {std::size_t{64} << 10, std::size_t{1} << 20,
                                  std::size_t{16} << 20};
constexpr int kSamples = 7;
constexpr std::chrono::milliseconds kSample{4};

struct Implementation {
  const char* name;
  std::shared_ptr<kernels::Unit> unit;  ///< Null for MCCL's own kernels, or if `missing` is set.
  std::string missing;                  ///< The reason why `unit` could not be made; else empty.
};

Implementation way(const char* name, const std::function<std::shared_ptr<kernels::Unit>()>& make) {
  try {
    return {name, make(), {}};
  } catch (const InvalidArgument& error) {
    return {name, nullptr, error.what()};
  }
}

/// In GB of the result per second; 0 if the unit does not support the type.
double rate_of(const Implementation& way, DType dtype, std::vector<std::byte>& a,
               const std::vector<std::byte>& b) {
  const std::size_t n = a.size() / size_of(dtype);
  const auto sum = [&] {
    if (way.unit) return way.unit->reduce(dtype, ReduceKind::sum, a.data(), b.data(), a.data(), n);
    kernels::reduce(dtype, ReduceKind::sum, a.data(), b.data(), a.data(), n);
    return true;
  };
  if (!sum()) return 0;
  double best = std::numeric_limits<double>::max();
  for (int sample = 0; sample < kSamples; ++sample) {
    const Clock::time_point begin = Clock::now();
    int times = 0;
    for (; Clock::now() - begin < kSample; ++times) sum();
    const std::chrono::duration<double> taken = Clock::now() - begin;
    best = std::min(best, taken.count() / times);
  }
  return static_cast<double>(a.size()) / best / 1e9;
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

Bounds measure_bounds(Group& group, bool one_host) {
  Bounds bounds;
  const auto ranks = static_cast<std::size_t>(group.size());
  bounds.buffer_bytes = std::clamp(kAllBuffers / ranks / kStage * kStage, 4 * kStage, kBuffer);
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

std::string kernels_text(const Config& config) {
  const Implementation ways[] = {
      {"own", nullptr, {}},
      way("accelerate", [] { return kernels::make_accelerate(); }),
      way("gpu", [&] {
        return kernels::make_reducer({config.fast_math, config.shader_path});
      })};
  cluster::TableRows rows = {{"# type", "size"}};
  for (const Implementation& each : ways) rows.front().emplace_back(each.name);
  for (const DType dtype : kTypes) {
    for (const std::size_t bytes : kSizes) {
      std::vector<std::byte> a(bytes);
      const std::vector<std::byte> b(bytes);
      std::vector<std::string>& row =
          rows.emplace_back(std::vector{std::string(name_of(dtype)), text_of_size(bytes)});
      for (const Implementation& each : ways) {
        const double rate = each.missing.empty() ? rate_of(each, dtype, a, b) : 0;
        row.push_back(rate > 0 ? fmt::format("{:.1f}", rate) : "-");
      }
    }
  }
  std::string text = "# a = a + b on one core, GB/s of the result\n" + cluster::table_text(rows);
  for (const Implementation& each : ways) {
    if (!each.missing.empty()) text += fmt::format("# {}: {}\n", each.name, each.missing);
  }
  text +=
      "# accelerate=true computes sums of f32 with Accelerate; reduce_on=gpu computes sums of "
      "16-bit floats on the GPU\n";
  return text;
}

}  // namespace mccl::cli::bench
