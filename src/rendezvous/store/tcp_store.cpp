#include "rendezvous/store/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/error.h"
#include "rendezvous/connections/binding.h"
#include "rendezvous/connections/conversation.h"
#include "rendezvous/store/key_agreement.h"
#include "rendezvous/store/memory_store.h"
#include "transport/tcp/encryption.h"

namespace mccl::rendezvous {

namespace {

/// Time limit of one round, in which each address of rank 0 is tried. It is long, because rank 0
/// may have few cores and many clients, and may have completed a handshake that is abandoned here.
constexpr Clock::duration kRoundLimit = 20s;
/// Maximum time that a healthy server needs to answer, in addition to the wait that a get()
/// requests.
constexpr milliseconds kAnswerLimit = 30s;

Entrance entrance_at(const std::string& address) {
  const HostPort where = parse_host_port(address);
  return {
      .name = "at " + address,
      .advice = fmt::format("Check that rank 0 runs, that it was given the same address, and "
                            "that no firewall blocks port {}",
                            where.port),
      .advice_when_met =
          "A program accepted a connection at that address, so no firewall blocks that address: "
          "check that the program is rank 0 of this job and not stopped, and that every rank "
          "has the same MCCL_JOB_KEY",
      .ways = [where] {
        std::vector<Candidate> ways;
        for (const Address& each : resolve(where.host, where.port)) ways.push_back({each, {}, {}});
        return ways;
      }};
}

/// Throws InvalidArgument if the address of rank 0 belongs to another host, because a store without
/// a key accepts no process of another host.
void check_same_host(const std::string& address, int rank) {
  std::vector<Address> found;
  const HostPort where = parse_host_port(address);
  try {
    found = resolve(where.host, where.port);
  } catch (const InvalidArgument&) {
    return;  // An unknown name is no error: it may become resolvable later.
  }
  const auto interfaces = list_interfaces();
  const auto is_here = [&](const Address& each) {
    return each.is_loopback() || each.is_wildcard() ||
           transport::tcp::find_interface(interfaces, each) != nullptr;
  };
  if (std::ranges::any_of(found, is_here)) return;
  throw InvalidArgument(
      fmt::format("rank {} does not start: the address of rank 0, {}, belongs to another host, and "
                  "ranks on several hosts need a key; {}",
                  rank, address, kHowToMakeAKey));
}

/// The client by which the other ranks use the store. Every request in flight has its own
/// connection, so that a waiting get() does not delay other requests. If rank 0 has ended, one
/// request fails; the next request waits for rank 0 to start again.
class RemoteStore final : public RemoteAnswers {
 public:
  RemoteStore(Entrance entrance, int rank, Party access, milliseconds timeout)
      : entrance_(std::move(entrance)),
        rank_(rank),
        self_(std::move(access)),
        timeout_(std::clamp(timeout, 0ms, kLongestWait)) {
    idle_.emplace_back(connect());
  }
  /// Sends `leave`. Without this message, the server counts the client as dead when its connections
  /// end.
  ~RemoteStore() override {
    try {
      const Bytes leave = encode(StoreKind::leave, {}, {}, 0);
      for (ByteStream& stream : idle_) {
        stream.queue(leave);
        (void)stream.flush();
      }
    } catch (const std::bad_alloc&) {
      // Without memory for the message, the server counts this process as dead.
    }
  }

  void set(const std::string& key, std::string_view value) override {
    check_key(key);
    check_value(key, value);
    call(encode(StoreKind::set, key, value, 0), key, 0ms);
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    check_key(key);
    timeout = std::clamp(timeout, 0ms, kLongestWait);
    return call(encode(StoreKind::get, key, {}, timeout.count()), key, timeout).value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    check_key(key);
    return call(encode(StoreKind::add, key, {}, amount), key, 0ms).number;
  }

 private:
  struct Answer {
    std::string value;
    std::int64_t number = 0;
  };

  Socket connect() {
    const Clock::time_point begun = Clock::now();
    const Clock::time_point deadline = std::min(begun + timeout_, answer_limit());
    DialRequest request{.self = self_,
                        .peer = 0,
                        .key = {0, Purpose::store, 0},
                        .through = entrance_.through,
                        .once = true,
                        .limits_silence = true};
    Clock::duration back_off = kFirstBackOff;
    std::string trouble;
    bool met = false;
    for (;;) {
      try {
        request.deadline = std::min(deadline, Clock::now() + kRoundLimit);
        request.candidates = entrance_.ways();
        Dial dial(request);
        if (Socket socket = dial.run()) return socket;
        if (dial.was_refused()) {
          throw PeerError(
              fmt::format("rank {} cannot use the store of rank 0: {}", rank_, dial.reason()));
        }
        // Keep the outcome of an earlier, complete round. It is more informative than the outcome
        // of a round that the deadline cuts short.
        const bool is_complete = trouble.empty() || Clock::now() < deadline;
        for (const Candidate& each : dial.candidates()) {
          if (!is_complete || each.outcome.empty()) continue;
          trouble = fmt::format("{}: {}", each.text(), each.outcome);
          met = each.met;
        }
      } catch (const PeerError&) {
        throw;
      } catch (const Error& error) {
        trouble = error.what();
        met = false;
      }
      const Clock::time_point now = Clock::now();
      if (now >= deadline) {
        throw PeerError(fmt::format(
            "rank {} could not reach the store of rank 0 {} within {:.1f} s; the last attempt: "
            "{}. {}",
            rank_, entrance_.name, seconds_between(begun, deadline), trouble,
            met ? entrance_.advice_when_met : entrance_.advice));
      }
      std::this_thread::sleep_for(std::min(back_off, deadline - now));
      back_off = std::min(2 * back_off, kLongestBackOff);
    }
  }

  [[noreturn]] void lost(const std::string& why) const {
    throw PeerError(fmt::format(
        "rank {} lost its connection to the store of rank 0 {}: {}; the store ends with "
        "rank 0, so find out why rank 0 ended",
        rank_, entrance_.name, why));
  }

  ByteStream idle_or_new() {
    {
      const std::lock_guard lock(mutex_);
      const bool was_connected = !idle_.empty();
      while (!idle_.empty()) {
        ByteStream stream = std::move(idle_.back());
        idle_.pop_back();
        if (Bytes none; stream.receive(none, 1) && none.empty()) return stream;
      }
      // Rank 0 may be restarted, but its new store lacks the former data, so the caller must see an
      // error first.
      if (was_connected) lost("it closed the connection");
    }
    return ByteStream(connect());
  }

  Answer call(const Bytes& request, const std::string& key, milliseconds wait) {
    ByteStream stream = idle_or_new();
    const Bytes message =
        exchange(stream, request, std::min(Clock::now() + wait + kAnswerLimit, answer_limit()));
    {
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(stream));
    }
    const StoreHeader header = *decode_store_header(message);
    std::string value(text_of(std::span(message).subspan(kStoreHeaderBytes)));
    if (header.kind == StoreKind::missing) throw_missing_key(key, wait);
    if (header.kind == StoreKind::invalid) throw InvalidArgument(value);
    return {std::move(value), header.number};
  }

  /// Sends the request and returns the whole answer.
  Bytes exchange(ByteStream& stream, const Bytes& request, Clock::time_point deadline) const {
    stream.queue(request);
    Bytes answer;
    for (std::size_t wanted = kStoreHeaderBytes;;) {
      if (!stream.flush() || (!stream.has_output() && !stream.receive(answer, wanted))) {
        lost(stream.error() == 0 ? "it closed the connection" : describe_errno(stream.error()));
      }
      if (answer.size() == wanted) {
        const auto header = decode_store_header(answer);
        if (!header || !header->is_answer()) lost("its answer is malformed");
        if (wanted == header->total_bytes()) return answer;
        wanted = header->total_bytes();
        continue;
      }
      const pollfd next = stream.watched(!stream.has_output());
      if (Clock::now() >= deadline || !wait_for(next.fd, next.events, deadline)) {
        lost(stream.has_output() ? "it accepts no more requests"
                                 : "it does not answer, so rank 0 is stopped or unreachable");
      }
    }
  }

  const Entrance entrance_;
  const int rank_;
  Party self_;
  const milliseconds timeout_;
  std::mutex mutex_;
  std::vector<ByteStream> idle_;  ///< Connections without a request in flight; guarded by mutex_.
};

/// Time limit for finding out whether a port that is in use is that of a rank 0.
constexpr milliseconds kPatienceWithRank0 = 1s;

/// True if a rank 0 with the same key serves a store at `address`. That rank logs a warning that a
/// process has claimed its rank.
bool is_served(const std::string& address, const Party& access) {
  try {
    const RemoteStore store(entrance_at(address), 0, access, kPatienceWithRank0);
    return true;
  } catch (const Error&) {
    return false;
  }
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

/// Listens at a numeric address or "localhost" as given, and at all addresses for any other name: a
/// host's own name often resolves to another address (on Debian, 127.0.1.1) than on other hosts. If
/// the port is that of another process that is rank 0 of this job, both processes report it.
std::vector<Listener> listen_at(const std::string& address, const Party& access) {
  const HostPort where = parse_host_port(address);
  std::vector<Listener> listeners;
  try {
    if (where.host == "localhost" || Address::parse_numeric(where.host, where.port)) {
      return listen_at_each(resolve(where.host, where.port));
    }
    listeners.push_back(listen_everywhere(where.port, 0));
    return listeners;
  } catch (const BindError& error) {
    std::string advice = "check the address";
    if (error.code == EADDRINUSE) {
      if (is_served(address, access)) {
        throw InvalidArgument(fmt::format(
            "rank 0 exists already: it serves the job's store at {}; give every process its own "
            "rank (MCCL_RANK), and end any process left from an earlier run",
            address));
      }
      advice =
          "another program uses the port; choose another one (with mccl launch: --starting-port)";
    }
    if (error.code == EADDRNOTAVAIL) {
      advice = fmt::format(
          "rank 0 must run on the host that has this address; if the address is translated (NAT), "
          "give rank 0 the address 0.0.0.0:{} instead",
          where.port);
    }
    throw InvalidArgument(
        fmt::format("rank 0 cannot serve the store at {}: {}; {}", address, error.what(), advice));
  }
}

}  // namespace

std::shared_ptr<Store> reach_store(Entrance entrance, int rank, Party access,
                                   milliseconds timeout) {
  access.rank = rank;
  check_key_for_encryption(access);
  return std::make_shared<RemoteStore>(std::move(entrance), rank, std::move(access), timeout);
}

std::shared_ptr<Store> make_tcp_store_for(Party access, const std::string& address, int rank,
                                          milliseconds timeout, const StoreReport& report) {
  if (rank < 0)
    throw InvalidArgument(fmt::format("the store needs a rank of at least 0; found {}", rank));
  if (rank == 0) {
    check_key_for_encryption(access);
    std::vector<Listener> listeners = listen_at(address, access);
    return serve_store(std::move(listeners), std::move(access), report);
  }
  Entrance entrance = entrance_at(address);
  if (access.job_key.empty() && access.keyless == Keyless::same_user)
    check_same_host(address, rank);
  return reach_store(std::move(entrance), rank, std::move(access), timeout);
}

}  // namespace mccl::rendezvous

namespace mccl {

std::shared_ptr<Store> make_tcp_store(const std::string& address, int rank,
                                      const SecretBytes& job_key, std::chrono::milliseconds timeout,
                                      const StoreReport& report) {
  // The caller supplies no settings, so only the environment can request encryption. The other
  // settings matter once the program makes a context. The key in the environment stays where it is:
  // the caller may have passed a pointer to it, and need it again.
  const ProcessEnvironment environment = process_environment();
  std::map<std::string, std::string> about_encryption;
  for (const auto& variable : environment) {
    if (variable.first == "MCCL_ENCRYPTION" || variable.first.starts_with("MCCL_TLS_"))
      about_encryption.insert(variable);
  }
  const Config config = Config::from_environment(about_encryption);
  rendezvous::Party access = {.job_key = job_key,
                              .encryption = transport::tcp::Encryption::of(config)};
  return rendezvous::make_tcp_store_for(std::move(access), address, rank, timeout, report);
}

}  // namespace mccl
