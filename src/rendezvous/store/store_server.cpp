#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>
#include <utility>

#include "base/thread.h"
#include "base/wake_pipe.h"
#include "mccl/error.h"
#include "mccl/metrics.h"
#include "rendezvous/connections/accepting.h"
#include "rendezvous/store/key_agreement.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/tcp_store.h"

namespace mccl::rendezvous {

namespace {

/// Size of the buffer that each client has for a request or an answer. A larger message also needs
/// a part of kSharedBytes, which all clients share, and waits until enough of it is free.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;
constexpr std::size_t kSharedBytes = std::size_t{32} << 20;
/// The burst is large, because all ranks of a large job may start at the same time.
constexpr AdmissionRate kAdmission = {4096, 1000};
constexpr Clock::duration kPauseForRoom = 100ms;

/// Throws InvalidArgument for keys that only rank 0 may write.
void check_writer(const std::string& key) {
  if (key.find(kServersOwn) == key.npos) return;
  throw InvalidArgument(fmt::format("only rank 0 may write the store key \"{}\"", key));
}

Party with_key_file(Party access) {
  if (!access.job_key.empty() || access.keyless == Keyless::anyone) return access;
  const std::vector<std::string> folders = private_folders();
  access.key_file = std::make_shared<const KeyFile>(folders);
  access.key_file->require(folders);
  return access;
}

/// Rank 0's store: a MemoryStore, which one thread serves to connections whose handshake has
/// succeeded.
///
/// Locks: the table has its own lock. Only the thread uses the other members, except the stop flag
/// and the wake-up pipe.
class ServedStore final : public Store {
 public:
  ServedStore(std::vector<Listener> listeners, Party access, const StoreReport& report,
              const StoreLimits& limits)
      : limits_(limits),
        acceptor_(
            std::move(listeners), with_key_file(std::move(access)), Log(0, report.log),
            [metrics = report.metrics] {
              if (metrics) metrics->record_refused_connection();
            },
            " (at the store)") {
    acceptor_.limit(kAdmission, Clock::now());
    thread_ = start_thread("mccl store", [this] { run(); });
  }
  /// Ends the thread, which closes the clients' connections.
  ~ServedStore() override {
    stop_ = true;
    wake_.wake();
    thread_.join();
  }

  void set(const std::string& key, std::string_view value) override {
    table_.set(key, value);
    wake_.wake();  // The thread answers the clients that wait for the key.
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    return table_.get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const std::int64_t sum = table_.add(key, amount);
    wake_.wake();
    return sum;
  }

 private:
  struct Wait {
    std::string key;
    Clock::time_point deadline;
  };
  struct Client {
    Client(int of, Socket socket) : rank(of), stream(std::move(socket)) {}
    /// True while a request is partly received or an answer is partly sent.
    bool in_transfer() const { return stream.has_output() || (!input.empty() && !wait); }

    int rank;
    ByteStream stream;
    /// Deadline for receiving the rest of a request or sending the rest of an answer.
    Clock::time_point deadline;
    /// Bytes of shared_left_ that are reserved for a large request of the client, and for a large
    /// answer to the client.
    std::size_t large_input = 0;
    std::size_t large_output = 0;
    Bytes input;
    /// Maximum size of `input` in bytes, for the request that is being received.
    std::size_t input_limit = 0;
    std::optional<Wait> wait;
    bool has_asked = false;
    /// Name of the run of the job to which the client's requests belong; empty until a request has
    /// shown it.
    std::string start;
    bool has_left = false;  ///< True if the client has sent `leave`.
  };

  void run() {
    while (!stop_) {
      const Clock::time_point now = Clock::now();
      admit(now);
      for (auto client = clients_.begin(); client != clients_.end();) {
        const bool stays = serve(*client, now);
        if (!stays) {
          count_death(*client);
          give_back(client->large_input);
          give_back(client->large_output);
        }
        client = stays ? std::next(client) : clients_.erase(client);
      }
      // A client that the loop above served later may have set the key for which another waits.
      for (Client& client : clients_) look_again(client, now);
      // A client may be waiting for bytes that were given back, so serve all clients again at once.
      if (!std::exchange(given_back_, false)) sleep();
    }
    clients_.clear();
    acceptor_.close();
  }

  void sleep() {
    std::vector<pollfd> entries = {{wake_.descriptor(), POLLIN, 0}};
    acceptor_.watch(entries);
    Clock::time_point deadline = acceptor_.next_deadline();
    for (const Client& client : clients_) {
      const pollfd entry = client.stream.watched(client.input.size() < client.input_limit);
      if (entry.events != 0) entries.push_back(entry);
      if (client.stream.has_input() && client.input.size() < client.input_limit)
        deadline = Clock::now();
      if (client.in_transfer()) deadline = std::min(deadline, client.deadline);
      if (client.wait) deadline = std::min(deadline, client.wait->deadline);
    }
    (void)::poll(entries.data(), static_cast<nfds_t>(entries.size()), milliseconds_until(deadline));
    wake_.drain();
  }

  void admit(Clock::time_point now) {
    std::vector<Newcomer> newcomers;
    acceptor_.advance(now, newcomers);
    for (Newcomer& newcomer : newcomers) {
      if (!newcomer.socket) {
        acceptor_.refuse(newcomer, LogLevel::warn, newcomer.reason, now);
      } else if (newcomer.key.purpose != Purpose::store) {
        acceptor_.refuse(newcomer, LogLevel::warn,
                         fmt::format("rank {} expects a peer at this address, where rank 0 serves "
                                     "the store; give every rank the same MCCL_ROOT",
                                     newcomer.peer),
                         now);
      } else if (clients_.size() >= limits_.clients) {
        acceptor_.refuse(newcomer, LogLevel::info,
                         "too many other clients are connected to the store", now);
      } else {
        clients_.emplace_back(newcomer.peer, std::move(newcomer.socket));
      }
    }
  }

  /// serve(), receive() and answer_next() return false if the client must be removed.
  bool serve(Client& client, Clock::time_point now) {
    if (!client.in_transfer()) client.deadline = now + limits_.transfer;
    if (!receive(client) || !answer_next(client, now) || !client.stream.flush()) return false;
    if (!client.stream.has_output()) give_back(client.large_output);
    return !client.in_transfer() || now < client.deadline;
  }

  bool receive(Client& client) {
    while (make_room_for_input(client)) {
      if (!client.stream.receive(client.input, client.input_limit)) return false;
      if (client.input.size() < client.input_limit) return true;
    }
    return true;
  }

  /// Returns true if more of a request may be read. For a request of more than kSmallBytes, first
  /// reserves bytes of shared_left_.
  bool make_room_for_input(Client& client) {
    client.input_limit = kSmallBytes + client.large_input;
    if (client.input.size() < client.input_limit) return true;
    if (client.large_input > 0) return false;
    const auto header = decode_store_header(client.input);
    // answer_next() removes a client whose header is invalid.
    if (!header || header->total_bytes() <= kSmallBytes) return false;
    if (!borrow(client.large_input, header->total_bytes() - kSmallBytes)) return false;
    client.input_limit = header->total_bytes();
    client.input.reserve(client.input_limit);
    return true;
  }

  /// Gives back the `loan` bytes that are reserved, and reserves `bytes` of shared_left_ instead.
  /// If too few bytes are left, sets `loan` to 0 and returns false.
  bool borrow(std::size_t& loan, std::size_t bytes) {
    give_back(loan);
    if (bytes > shared_left_) return false;
    shared_left_ -= bytes;
    loan = bytes;
    return true;
  }

  void give_back(std::size_t& loan) {
    given_back_ |= loan > 0;
    shared_left_ += std::exchange(loan, 0);
  }

  bool answer_next(Client& client, Clock::time_point now) {
    if (client.wait || client.stream.has_output() || client.input.size() < kStoreHeaderBytes)
      return true;
    const std::span<const std::byte> input = client.input;
    const auto header = decode_store_header(input);
    if (!header || header->is_answer()) return false;
    const std::size_t total = header->total_bytes();
    if (input.size() < total) return true;
    const std::string key(text_of(input.subspan(kStoreHeaderBytes, header->key_bytes)));
    const std::string value(
        text_of(input.subspan(kStoreHeaderBytes + header->key_bytes, header->value_bytes)));
    client.input.erase(client.input.begin(),
                       client.input.begin() + static_cast<std::ptrdiff_t>(total));
    client.input.shrink_to_fit();
    give_back(client.large_input);
    perform(client, *header, key, value, now);
    return true;
  }

  void perform(Client& client, const StoreHeader& header, const std::string& key,
               std::string_view value, Clock::time_point now) {
    note(client, key);
    try {
      if (header.kind == StoreKind::get) {
        const auto wait = std::clamp(milliseconds(header.number), 0ms, kLongestWait);
        client.wait = Wait{key, now + wait};
        return look_again(client, now);
      }
      check_writer(key);
      if (header.kind == StoreKind::leave) {
        client.has_left = true;
        return;
      }
      std::int64_t sum = 0;
      if (header.kind == StoreKind::set) {
        table_.set(key, value);
      } else {
        sum = table_.add(key, header.number);
      }
      client.stream.queue(encode(StoreKind::ok, {}, {}, sum));
    } catch (const InvalidArgument& error) {
      client.stream.queue(encode(StoreKind::invalid, {}, error.what(), 0));
    }
  }

  /// Records the name of the run of the job that the client's requests belong to, for all
  /// connections of the rank: count_death() reports that of the connection that ends last.
  void note(Client& client, const std::string& key) {
    client.has_asked = true;
    const std::string_view start = start_in(key);
    if (start.empty() || client.start == start) return;
    for (Client& each : clients_) {
      if (each.rank == client.rank) each.start = start;
    }
  }

  void count_death(const Client& client) {
    // A client that has sent no request does not count as dead. Such a client closed its connection
    // before it saw that the handshake had succeeded, and it dials again.
    if (client.has_left || !client.has_asked) return;
    if (client.input.size() >= kStoreHeaderBytes) {
      // A `leave` that arrived together with the end of the connection is still in `input`.
      const auto last = decode_store_header(client.input);
      if (last && last->kind == StoreKind::leave) return;
    }
    const bool lives = std::ranges::any_of(clients_, [&](const Client& other) {
      return &other != &client && other.rank == client.rank;
    });
    if (lives) return;
    const std::int64_t number = table_.add(kDeaths, 1);
    table_.set(kDeath + std::to_string(number), fmt::format("{} {}", client.rank, client.start));
  }

  void look_again(Client& client, Clock::time_point now) {
    if (!client.wait) return;
    if (const auto value = table_.find(client.wait->key)) {
      if (value->size() > kSmallBytes && !borrow(client.large_output, value->size())) {
        client.wait->deadline = std::max(client.wait->deadline, now + kPauseForRoom);
        return;
      }
      client.stream.queue(encode(StoreKind::ok, {}, *value, 0));
    } else if (now >= client.wait->deadline) {
      client.stream.queue(encode(StoreKind::missing, {}, {}, 0));
    } else {
      return;
    }
    client.wait.reset();
  }

  MemoryStore table_;
  const StoreLimits limits_;
  Acceptor acceptor_;
  std::size_t shared_left_ = kSharedBytes;  ///< Bytes that borrow() may still reserve.
  bool given_back_ = false;                 ///< Set by give_back(); cleared by run().
  std::list<Client> clients_;
  WakePipe wake_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<Store> serve_store(std::vector<Listener> listeners, Party access,
                                   const StoreReport& report, const StoreLimits& limits) {
  check_key_for_encryption(access);
  return std::make_shared<ServedStore>(std::move(listeners), std::move(access), report, limits);
}

}  // namespace mccl::rendezvous
