#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/no_signal.h"
#include "base/would_block.h"
#include "mccl/error.h"
#include "mccl/metrics.h"
#include "mccl/store.h"
#include "rendezvous/answer_limit.h"
#include "rendezvous/conversation.h"
#include "rendezvous/dialing.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_wire.h"
#include "rendezvous/waiting.h"
#include "rendezvous/wired_store.h"
#include "transport/tcp/address.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;
using transport::tcp::Address;
using transport::tcp::BindError;
using transport::tcp::describe_errno;
using transport::tcp::HostPort;
using transport::tcp::Listener;
using transport::tcp::Socket;

/// Time limit of a handshake. Rank 0 may have few cores and many clients, and may consider the
/// handshake complete before its answer is read here.
constexpr Clock::duration kHandshakeLimit = 20s;
/// Maximum time that a healthy server needs beyond the wait requested by a get.
constexpr std::chrono::milliseconds kAnswerLimit = 30s;

/// True if a connection on which no answer is due is still open.
bool is_open(const Socket& socket) {
  char byte = 0;
  const ssize_t got = ::recv(socket.descriptor(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/// Listens at each of `addresses` that belongs to this host, and skips the others. For example,
/// "localhost" may resolve to an address whose family is disabled. Throws BindError if no address
/// belongs to this host, or if the port is taken.
std::vector<Listener> listen_at_each(const std::vector<Address>& addresses) {
  std::vector<Listener> listeners;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    try {
      listeners.emplace_back(addresses[i], 0);
    } catch (const BindError& error) {
      const bool absent = error.code == EADDRNOTAVAIL || error.code == EAFNOSUPPORT;
      const bool last = i + 1 == addresses.size();
      if (!absent || (last && listeners.empty())) throw;
    }
  }
  return listeners;
}

/// Listens at a numeric address or "localhost" as given. For any other name it listens at all
/// addresses: a host's own name often maps to another address there (Debian maps it to 127.0.1.1).
std::vector<Listener> listen_at(const std::string& address) {
  const HostPort where = transport::tcp::parse_host_port(address);
  std::vector<Listener> listeners;
  try {
    if (where.host == "localhost" || Address::parse_numeric(where.host, where.port)) {
      return listen_at_each(transport::tcp::resolve(where.host, where.port));
    }
    try {
      listeners.emplace_back(Address::wildcard(AF_INET6, where.port), 0);
    } catch (const BindError& error) {
      if (error.code == EADDRINUSE || error.code == EACCES) throw;
      listeners.emplace_back(Address::wildcard(AF_INET, where.port), 0);
    }
    return listeners;
  } catch (const BindError& error) {
    std::string advice = "check the address";
    if (error.code == EADDRINUSE) {
      advice =
          "another program uses the port; choose another one (with mccl launch: --starting-port)";
    }
    if (error.code == EADDRNOTAVAIL) {
      advice = fmt::format(
          "rank 0 must run on the host that has this address, or, if the address is translated "
          "(NAT), be given 0.0.0.0:{}",
          where.port);
    }
    throw InvalidArgument(
        fmt::format("rank 0 cannot serve the store at {}: {}; {}", address, error.what(), advice));
  }
}

/// How the other ranks connect to the store.
struct Entrance {
  std::string name;             ///< Used in messages.
  std::string advice;           ///< Advice if no attempt was answered.
  std::string advice_when_met;  ///< Advice if a connection was accepted but not proven.
  /// Returns the candidates. Called at every attempt, because names may resolve differently later.
  /// Throws Error, or PeerError if further attempts are useless.
  std::function<std::vector<Candidate>()> ways;
  /// The relay to go through; empty if the candidates are the store's own addresses.
  std::optional<FirstHop> through = {};
};

Entrance entrance_at(const std::string& address) {
  const HostPort where = transport::tcp::parse_host_port(address);
  return {.name = address,
          .advice = fmt::format("Check that rank 0 runs, that it was given the same address, and "
                                "that no firewall blocks port {}",
                                where.port),
          .advice_when_met =
              "Something listens there, so no firewall is in the way: check that it "
              "is rank 0 of this job, that it runs, and that every rank has the "
              "same MCCL_JOB_KEY",
          .ways = [where] {
            std::vector<Candidate> ways;
            for (const Address& each : transport::tcp::resolve(where.host, where.port))
              ways.push_back({each, {}, {}});
            return ways;
          }};
}

Entrance entrance_of(const std::shared_ptr<Wiring>& wiring) {
  Wiring::Way way = wiring->way_to(0, Destination::store);
  return {.name = fmt::format("the end of the cables through rank {}", way.first.rank),
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

/// Rank 0's store.
class ServedStore final : public Store {
 public:
  ServedStore(std::vector<Listener> listeners, const std::string& job_key,
              const StoreReport& report)
      : server_(table_, std::move(listeners), job_key, Log(0, log_level_of(report.log_level)),
                [metrics = report.metrics] {
                  if (metrics) metrics->record_refused_connection();
                }) {}

  void set(const std::string& key, std::string_view value) override {
    table_.set(key, value);
    server_.wake();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return table_.get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::int64_t sum = table_.add(key, amount);
    server_.wake();
    return sum;
  }

 private:
  MemoryStore table_;
  StoreServer server_;
};

/// The store of the other ranks. Every request in flight has its own connection, so that a waiting
/// get() does not delay others. If rank 0 has ended, one request fails; the next one waits for rank
/// 0 to start again.
class RemoteStore final : public RemoteAnswers {
 public:
  RemoteStore(Entrance entrance, int rank, std::string job_key, std::chrono::milliseconds timeout)
      : entrance_(std::move(entrance)),
        rank_(rank),
        job_key_(std::move(job_key)),
        timeout_(std::clamp(timeout, 0ms, kLongestWait)) {
    idle_.push_back(connect());
  }
  /// Sends `leave`. The server counts a client that ends without it as dead.
  ~RemoteStore() override {
    try {
      const Bytes leave = encode_request(StoreCall::leave, {}, {}, 0);
      for (const Socket& socket : idle_) {
        static_cast<void>(::send(socket.descriptor(), leave.data(), leave.size(), kNoSignal) < 0);
      }
    } catch (const std::bad_alloc&) {
      // The server sees the connections end and counts this process as dead.
    }
  }

  void set(const std::string& key, std::string_view value) override {
    check_key(key);
    check_value(key, value);
    call(encode_request(StoreCall::set, key, value, 0), key, 0ms);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    check_key(key);
    timeout = std::clamp(timeout, 0ms, kLongestWait);
    return call(encode_request(StoreCall::get, key, {}, timeout.count()), key, timeout).value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    check_key(key);
    return call(encode_request(StoreCall::add, key, {}, amount), key, 0ms).number;
  }

 private:
  struct Answer {
    std::string value;
    std::int64_t number = 0;
  };

  Socket connect();
  struct Outcome {
    std::string trouble;
    bool met = false;  ///< True if the connection was accepted.
  };
  Socket try_connect(const Candidate& way, Clock::time_point deadline, Outcome& outcome);
  Answer call(const Bytes& request, const std::string& key, std::chrono::milliseconds wait);
  void send(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline);
  void receive(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline);
  [[noreturn]] void lost(const std::string& why) const;

  const Entrance entrance_;
  const int rank_;
  const std::string job_key_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::vector<Socket> idle_;  ///< Guarded by mutex_.
};

Socket RemoteStore::connect() {
  const Clock::time_point begun = Clock::now();
  const Clock::time_point deadline = std::min(begun + timeout_, answer_limit());
  Clock::duration back_off = kFirstBackOff;
  Outcome last;
  for (;;) {
    try {
      for (const Candidate& way : entrance_.ways()) {
        Outcome outcome;
        if (Socket socket = try_connect(way, deadline, outcome)) return socket;
        // Keep the outcome of an earlier, complete attempt. It is more informative than that of an
        // attempt which the deadline cuts short.
        if (last.trouble.empty() || Clock::now() < deadline)
          last = {fmt::format("{}: {}", way.text(), outcome.trouble), outcome.met};
      }
    } catch (const PeerError&) {
      throw;
    } catch (const Error& error) {
      last = {error.what()};
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      throw PeerError(fmt::format(
          "rank {} could not reach the store of rank 0 at {} within {:.1f} s; the last attempt: "
          "{}. {}",
          rank_, entrance_.name, seconds_between(begun, deadline), last.trouble,
          last.met ? entrance_.advice_when_met : entrance_.advice));
    }
    std::this_thread::sleep_for(std::min(back_off, deadline - now));
    back_off = std::min(2 * back_off, kLongestBackOff);
  }
}

/// Returns an empty socket, with the reason in `outcome`, if it fails.
Socket RemoteStore::try_connect(const Candidate& way, Clock::time_point deadline,
                                Outcome& outcome) {
  std::string& trouble = outcome.trouble;
  const Clock::time_point limit = std::min(deadline, Clock::now() + kAttemptLimit);
  Socket socket = Socket::stream(way.to.family());
  transport::tcp::tune_stream(socket);
  int error = transport::tcp::start_connect(socket, way.to, way.from ? &*way.from : nullptr);
  if (error == EINPROGRESS) {
    if (!wait_for(socket.descriptor(), POLLOUT, limit)) {
      trouble = "no answer to the attempt to connect";
      return {};
    }
    error = socket.take_error();
  }
  if (error != 0 || transport::tcp::is_self_connected(socket)) {
    trouble = error != 0 ? describe_errno(error) : "nothing listens there";
    return {};
  }
  outcome.met = true;
  transport::tcp::limit_silence(socket);
  const Clock::time_point end = std::min(deadline, Clock::now() + kHandshakeLimit);
  if (const auto& first = entrance_.through) {
    Conversation asking(std::move(socket), Handshake::dialer(first->self, first->rank, first->key));
    if (!converse(asking, end, trouble)) return {};
    socket = asking.take_socket();
  }
  Conversation conversation(
      std::move(socket),
      Handshake::dialer({rank_, 0, job_key_, {}}, 0, {0, transport::Purpose::store, 0}));
  if (!converse(conversation, end, trouble)) return {};
  return conversation.take_socket();
}

void RemoteStore::lost(const std::string& why) const {
  throw PeerError(fmt::format(
      "rank {} lost its connection to the store of rank 0 at {}: {}; the store ends with "
      "rank 0, so find out why rank 0 ended",
      rank_, entrance_.name, why));
}

RemoteStore::Answer RemoteStore::call(const Bytes& request, const std::string& key,
                                      std::chrono::milliseconds wait) {
  Socket socket;
  {
    const std::lock_guard lock(mutex_);
    const bool was_connected = !idle_.empty();
    while (!socket && !idle_.empty()) {
      if (is_open(idle_.back())) socket = std::move(idle_.back());
      idle_.pop_back();
    }
    // Rank 0 may start again, but without its former data, so the caller must see an error first.
    if (was_connected && !socket) lost("it closed the connection");
  }
  if (!socket) socket = connect();
  const Clock::time_point deadline = std::min(Clock::now() + wait + kAnswerLimit, answer_limit());
  send(socket, request, deadline);
  std::array<std::byte, kAnswerHeaderBytes> raw;
  receive(socket, raw, deadline);
  const auto header = decode_answer(raw);
  if (!header) lost("its answer is malformed");
  Answer answer{std::string(header->value_bytes, '\0'), header->number};
  receive(socket, std::as_writable_bytes(std::span(answer.value)), deadline);
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(socket));
  }
  if (header->answer == StoreAnswer::missing) throw_missing_key(key, wait);
  if (header->answer == StoreAnswer::invalid) throw InvalidArgument(answer.value);
  return answer;
}

void RemoteStore::send(const Socket& socket, std::span<const std::byte> bytes,
                       Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.descriptor(), bytes.data(), bytes.size(), kNoSignal);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.descriptor(), POLLOUT, deadline)) lost("it accepts no more requests");
    } else if (lacks_memory(errno) && Clock::now() < deadline) {
      nap_if_memory_is_short(errno);
    } else if (errno != EINTR) {
      lost(describe_errno(errno));
    }
  }
}

void RemoteStore::receive(const Socket& socket, std::span<std::byte> bytes,
                          Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      lost("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.descriptor(), POLLIN, deadline))
        lost("it does not answer, so rank 0 is stopped or unreachable");
    } else if (errno != EINTR) {
      lost(describe_errno(errno));
    }
  }
}

}  // namespace

std::shared_ptr<Store> make_wired_store(const std::shared_ptr<Wiring>& wiring, int rank,
                                        const std::string& job_key,
                                        std::chrono::milliseconds timeout,
                                        const StoreReport& report) {
  if (rank != 0) return std::make_shared<RemoteStore>(entrance_of(wiring), rank, job_key, timeout);
  std::vector<Listener> listeners;
  listeners.push_back(wiring->inlet(Destination::store));
  return std::make_shared<ServedStore>(std::move(listeners), job_key, report);
}

}  // namespace mccl::rendezvous

namespace mccl {

std::shared_ptr<Store> make_tcp_store(const std::string& address, int rank,
                                      const std::string& job_key, std::chrono::milliseconds timeout,
                                      const StoreReport& report) {
  if (rank < 0)
    throw InvalidArgument(fmt::format("the store needs a rank of at least 0; found {}", rank));
  if (rank == 0) {
    return std::make_shared<rendezvous::ServedStore>(rendezvous::listen_at(address), job_key,
                                                     report);
  }
  return std::make_shared<rendezvous::RemoteStore>(rendezvous::entrance_at(address), rank, job_key,
                                                   timeout);
}

}  // namespace mccl
