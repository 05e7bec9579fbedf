#include "rendezvous/meeting/join.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/no_signal.h"
#include "base/rank_path.h"
#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/cabling/hostfile.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/key_agreement.h"
#include "rendezvous/store/tcp_store.h"

namespace mccl::rendezvous {
namespace {

constexpr std::size_t kLongestAnswer = 4096;

/// Client of MPICH's process manager (PMI 1). It sends one request at a time and reads one answer.
/// Requests and answers are lines of name=value pairs.
class Pmi {
 public:
  Pmi(int descriptor, milliseconds timeout)
      : descriptor_(descriptor), limit_(Clock::now() + timeout) {}

  /// Sends `question`. Returns the value of `wanted` in the answer, or an empty string if the
  /// answer has none. Throws Error if the answer's command is not `expected`, or if the answer
  /// reports a failure.
  std::string ask(const std::string& question, std::string_view expected, std::string_view wanted) {
    const std::string line = question + "\n";
    if (::send(descriptor_, line.data(), line.size(), kNoSignal) !=
        static_cast<ssize_t>(line.size()))
      fail(question, std::strerror(errno));
    const std::string answer = read_line(question);
    if (value_of(answer, "cmd") != expected) fail(question, in_quotes(answer));
    const std::string status = value_of(answer, "rc");
    if (!status.empty() && status != "0") fail(question, in_quotes(answer));
    return value_of(answer, wanted);
  }

 private:
  [[noreturn]] static void fail(const std::string& question, std::string_view found) {
    throw Error(
        fmt::format("MPICH's launcher does not answer {} as expected: {}; set MCCL_ROOT to "
                    "host:port of rank 0 on all ranks",
                    in_quotes(question), found));
  }

  std::string read_line(const std::string& question) {
    std::string line;
    for (char c = 0; line.size() < kLongestAnswer;) {
      if (!wait_for(descriptor_, POLLIN, limit_))
        fail(question, "no answer in time; are all ranks running?");
      const ssize_t n = ::read(descriptor_, &c, 1);
      if (n == 0) fail(question, "it closed the connection");
      if (n < 0 && errno != EINTR) fail(question, std::strerror(errno));
      if (n == 1 && c == '\n') return line;
      if (n == 1) line += c;
    }
    fail(question, "its answer is too long");
  }

  static std::string value_of(std::string_view answer, std::string_view name) {
    while (!answer.empty()) {
      std::string_view value = next_part(answer, ' ');
      if (next_part(value, '=') == name) return std::string(value);
    }
    return {};
  }

  int descriptor_;
  Clock::time_point limit_;
};

/// Calls `use`, whose InvalidArgument is about `root`. Rethrows it with the name of the setting to
/// change, MCCL_ROOT.
template <typename Use>
auto with_root(const std::string& root, const Config& config, const Use& use) {
  try {
    return use();
  } catch (const InvalidArgument& error) {
    const std::string what = error.what();
    throw InvalidArgument(
        root == config.root
            ? "MCCL_ROOT: " + what
            : what + "; set MCCL_ROOT=host:port on all ranks to use another address");
  }
}

/// Describes how to connect to rank 0's store along the cables.
Entrance entrance_of(const std::shared_ptr<Wiring>& wiring) {
  Wiring::Way way = wiring->way_to(0, Destination::store);
  return {.name = fmt::format("along the cables through rank {}", way.first.rank),
          .advice = "Check the cables, and that rank 0 runs",
          .advice_when_met =
              "Check the cables, that rank 0 runs, and that every rank has the same MCCL_JOB_KEY",
          .ways =
              [wiring, ways = std::move(way.candidates)] {
                wiring->check();
                return ways;
              },
          .through = std::move(way.first)};
}

}  // namespace

std::shared_ptr<Store> make_wired_store(const std::shared_ptr<Wiring>& wiring, int rank,
                                        Party access, milliseconds timeout,
                                        const StoreReport& report) {
  if (rank != 0) return reach_store(entrance_of(wiring), rank, std::move(access), timeout);
  std::vector<Listener> listeners;
  listeners.push_back(wiring->inlet(Destination::store));
  return serve_store(std::move(listeners), std::move(access), report);
}

std::string own_root(bool one_host) {
  const int port = Listener(*Address::parse_numeric("0.0.0.0", 0), 0).address().port();
  return fmt::format("{}:{}", one_host ? "127.0.0.1" : host_name(), port);
}

std::string exchange_root(int descriptor, int rank, const std::string& root, milliseconds timeout) {
  Pmi pmi(descriptor, timeout);
  pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", "");
  const std::string space = pmi.ask("cmd=get_my_kvsname", "my_kvsname", "kvsname");
  if (rank == 0) {
    pmi.ask(fmt::format("cmd=put kvsname={} key=mccl-root value={}", space, root), "put_result",
            "");
  }
  pmi.ask("cmd=barrier_in", "barrier_out", "");
  std::string found =
      pmi.ask(fmt::format("cmd=get kvsname={} key=mccl-root", space), "get_result", "value");
  pmi.ask("cmd=finalize", "finalize_ack", "");
  return found;
}

std::string meeting_point(const Placement& placement, const Config& config) {
  if (placement.pmi < 0) {
    if (!placement.root.empty())
      with_root(placement.root, config, [&] { parse_host_port(placement.root); });
    return placement.root;
  }
  return exchange_root(placement.pmi, placement.rank,
                       placement.rank == 0 ? own_root(placement.one_host) : "",
                       milliseconds_of(config.connect_timeout));
}

Joined join(const Placement& placement, const Config& config,
            const std::shared_ptr<Metrics>& metrics) {
  if (placement.size == 1 || meets_by_mpi(config)) return {};
  check_required_key(config, placement.rank, placement.size);
  const auto timeout = milliseconds_of(config.connect_timeout);
  const StoreReport report{log_options(config), metrics};
  if (auto wiring = wire(placement.rank, placement.size, config, metrics)) {
    auto store = make_wired_store(wiring, placement.rank, party_of(config), timeout, report);
    return {std::move(store), std::move(wiring)};
  }
  std::string root = meeting_point(placement, config);
  if (root.empty() && !config.hostfile.empty())
    root = text_of(read_hostfile(config.hostfile).front().front());
  const auto open_store = [&] {
    return make_tcp_store_for(party_of(config), root, placement.rank, timeout, report);
  };
  return {with_root(root, config, open_store), nullptr};
}

}  // namespace mccl::rendezvous
