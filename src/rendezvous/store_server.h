// Rank 0's side of the TCP store: one thread that serves a MemoryStore to proven connections.
//
// Locks: the table has its own. All other members belong to the thread, except the stop flag and
// the wake-up pipe.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/allowance.h"
#include "rendezvous/conversation.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/store_wire.h"
#include "rendezvous/turnstile.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

class StoreServer {
 public:
  /// The table must outlive the server. `on_refused` is called by the server's thread for every
  /// refused connection; it may be null.
  StoreServer(MemoryStore& table, std::vector<transport::tcp::Listener> listeners,
              std::string job_key, const Log& log, std::function<void()> on_refused);
  /// Ends the thread; the clients' connections are closed.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Must be called after code outside the server has changed the table, because a client may be
  /// waiting for the change.
  void wake();

 private:
  struct Wait {
    std::string key;
    Clock::time_point deadline;
  };
  struct Client {
    explicit Client(Conversation unproven, transport::tcp::Address address, Clock::time_point limit)
        : conversation(std::move(unproven)), from(address), deadline(limit) {}
    bool unproven() const { return conversation.has_value(); }
    /// True while a request is partly received or an answer is partly sent.
    bool in_transfer() const { return !output.empty() || (!input.empty() && !wait); }

    std::optional<Conversation> conversation;  ///< Set until the client is proven.
    transport::tcp::Address from;
    /// Deadline for the client to prove its identity. Once it is proven: deadline for receiving the
    /// rest of a request or sending the rest of an answer.
    Clock::time_point deadline;
    transport::tcp::Socket socket;
    Allowance::Loan large_input;
    Allowance::Loan large_output;
    Bytes input;
    std::size_t input_limit = 0;  ///< Maximum size of `input` at present.
    Bytes output;
    std::size_t sent = 0;
    std::optional<Wait> wait;
    int rank = -1;  ///< Set once the client is proven.
    bool has_asked = false;
    /// Name of the run of the job to which the client's requests belong; may be empty.
    std::string start;
    bool has_left = false;  ///< True if the client has sent `leave`.
  };

  void run();
  void sleep();
  void admit(Clock::time_point now);
  void make_room(Clock::time_point now);
  bool make_room_for_input(Client& client);
  /// The next five functions return false if the client must be removed.
  bool serve(Client& client, Clock::time_point now);
  bool prove(Client& client, Clock::time_point now);
  bool receive(Client& client);
  bool flush(Client& client);
  bool answer_next(Client& client, Clock::time_point now);
  void perform(Client& client, StoreCall call, const std::string& key, std::string_view value,
               std::int64_t number, Clock::time_point now);
  void look_again(Client& client, Clock::time_point now);
  void note(Client& client, const std::string& key);
  void count_death(const Client& client);

  MemoryStore& table_;
  std::vector<transport::tcp::Listener> listeners_;
  std::string job_key_;
  Turnstile turnstile_;
  Allowance shared_;
  std::list<Client> clients_;
  transport::tcp::Socket wake_reader_;
  transport::tcp::Socket wake_writer_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace mccl::rendezvous
