// Rank 0's side of the TCP store: one thread that serves a MemoryStore to proven connections.
//
// Locks: the table has its own. All other members belong to the thread, except the stop flag and
// the wake-up pipe.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/wake_pipe.h"
#include "rendezvous/connections/accepting.h"
#include "rendezvous/connections/byte_stream.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/store_wire.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

/// A fixed number of bytes that users borrow as loans. Must outlive its loans. Not thread-safe.
class Allowance {
 public:
  explicit Allowance(std::size_t bytes) : left_(bytes) {}
  Allowance(const Allowance&) = delete;
  Allowance& operator=(const Allowance&) = delete;

  /// A part of the bytes, which the user holds until give_back() or destruction.
  class Loan {
   public:
    Loan() = default;
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { give_back(); }

    /// Changes the size of the loan to `bytes`. If too few bytes are left, the loan becomes empty
    /// and the function returns false.
    bool take(Allowance& from, std::size_t bytes) {
      give_back();
      if (bytes > from.left_) return false;
      from.left_ -= bytes;
      from_ = &from;
      bytes_ = bytes;
      return true;
    }
    void give_back() {
      if (bytes_ == 0) return;
      from_->left_ += std::exchange(bytes_, 0);
      from_->given_back_ = true;
    }
    std::size_t bytes() const { return bytes_; }

   private:
    Allowance* from_ = nullptr;
    std::size_t bytes_ = 0;
  };

  std::size_t left() const { return left_; }
  /// Returns true if bytes were given back since the last call. Waiting users may then try again.
  bool was_given_back() { return std::exchange(given_back_, false); }

 private:
  std::size_t left_;
  bool given_back_ = false;
};

/// The secret that the two sides of a store must share.
struct StoreAccess {
  std::string job_key = {};
  Keyless keyless = Keyless::same_user;  ///< Used if there is no job key.
  /// How connections are encrypted; null if they are not.
  std::shared_ptr<const transport::tcp::Encryption> encryption = nullptr;
};

/// Bounds on the clients of a store.
struct StoreLimits {
  /// Maximum number of clients: several for each rank of a large job.
  std::size_t clients = std::size_t{1} << 14;
  /// Time limit for a client to send the rest of a request, or to receive an answer.
  Clock::duration transfer = std::chrono::seconds(30);
};

class StoreServer {
 public:
  /// The table must outlive the server. `on_refused` is called by the server's thread for every
  /// refused connection; it may be null. Throws Error if a key file is needed and cannot be made.
  StoreServer(MemoryStore& table, std::vector<transport::tcp::Listener> listeners,
              const StoreAccess& access, const Log& log, std::function<void()> on_refused,
              const StoreLimits& limits = {});
  /// Ends the thread; the clients' connections are closed.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Must be called after code outside the server has changed the table, because a client may be
  /// waiting for the change.
  void wake() { wake_.wake(); }

 private:
  struct Wait {
    std::string key;
    Clock::time_point deadline;
  };
  struct Client {
    Client(int of, transport::tcp::Socket socket) : rank(of), stream(std::move(socket)) {}
    /// True while a request is partly received or an answer is partly sent.
    bool in_transfer() const { return stream.has_output() || (!input.empty() && !wait); }

    int rank;
    ByteStream stream;
    /// Deadline for receiving the rest of a request or sending the rest of an answer.
    Clock::time_point deadline;
    Allowance::Loan large_input;
    Allowance::Loan large_output;
    Bytes input;
    std::size_t input_limit = 0;  ///< Maximum size of `input` at present.
    std::optional<Wait> wait;
    bool has_asked = false;
    /// Name of the run of the job to which the client's requests belong; may be empty.
    std::string start;
    bool has_left = false;  ///< True if the client has sent `leave`.
  };

  void run();
  void sleep();
  void admit(Clock::time_point now);
  bool make_room_for_input(Client& client);
  /// The next three functions return false if the client must be removed.
  bool serve(Client& client, Clock::time_point now);
  bool receive(Client& client);
  bool answer_next(Client& client, Clock::time_point now);
  void perform(Client& client, const StoreHeader& header, const std::string& key,
               std::string_view value, Clock::time_point now);
  void look_again(Client& client, Clock::time_point now);
  void note(Client& client, const std::string& key);
  void count_death(const Client& client);

  MemoryStore& table_;
  const StoreLimits limits_;
  Acceptor acceptor_;
  Allowance shared_;
  std::list<Client> clients_;
  WakePipe wake_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace mccl::rendezvous
