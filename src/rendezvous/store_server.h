// Rank 0's side of the TCP store: one thread that serves a MemoryStore to proven connections.
//
// Locks: the table has its own. Everything else belongs to the thread, but for the stop flag and
// the wake-up pipe.
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "rendezvous/conversation.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/store_wire.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

class StoreServer {
 public:
  /// The table must outlive the server.
  StoreServer(MemoryStore& table, std::vector<transport::tcp::Listener> listeners,
              std::string job_key);
  /// Ends the thread; clients see their connections close.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// After a change of the table from outside: somebody may wait for it.
  void wake();

 private:
  struct Wait {
    std::string key;
    Clock::time_point deadline;
  };
  struct Client {
    explicit Client(Conversation unproven, Clock::time_point limit)
        : conversation(std::move(unproven)), deadline(limit) {}
    std::optional<Conversation> conversation;  ///< Until it is proven.
    Clock::time_point deadline;                ///< To prove itself.
    transport::tcp::Socket socket;
    Bytes input;
    Bytes output;
    std::size_t sent = 0;
    std::optional<Wait> wait;
    int rank = -1;          ///< Once it is proven.
    bool has_left = false;  ///< In good order.
  };

  void run();
  void sleep();
  void admit(Clock::time_point now);
  /// These return false once the client is no more.
  bool serve(Client& client, Clock::time_point now);
  bool prove(Client& client, Clock::time_point now);
  bool receive(Client& client);
  bool flush(Client& client);
  bool answer_next(Client& client, Clock::time_point now);
  void perform(Client& client, StoreCall call, const std::string& key, std::string_view value,
               std::int64_t number, Clock::time_point now);
  void look_again(Client& client, Clock::time_point now);
  void count_death(const Client& client);

  MemoryStore& table_;
  std::vector<transport::tcp::Listener> listeners_;
  std::string job_key_;
  std::list<Client> clients_;
  Clock::time_point paused_until_ = Clock::time_point::min();
  transport::tcp::Socket wake_reader_;
  transport::tcp::Socket wake_writer_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace mccl::rendezvous
