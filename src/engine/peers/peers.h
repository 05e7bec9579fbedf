// The other processes of the job: a control connection to each, and who has gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rank.h"
#include "engine/driving/driver.h"
#include "engine/peers/control.h"

namespace mccl::engine {

/// This rank's own entry stays empty. Used under the engine's progress lock.
class Peers {
 public:
  /// Messages of one peer that are taken in before all others are heard and data move again.
  static constexpr int kMessagesAtATime = 64;

  explicit Peers(int size) : peers_(static_cast<std::size_t>(size)) {}

  void connect(WorldRank rank, std::unique_ptr<transport::Link> link);
  bool connected(WorldRank rank) const { return peer(rank).control != nullptr; }
  /// Why the peer is gone; empty while it is there.
  const std::string& lost(WorldRank rank) const { return peer(rank).lost; }

  /// It is gone, in good order: it goes on passing on what is for others.
  bool has_left(WorldRank rank) const { return peer(rank).has_left; }

  /// Whether all that are there have said so; of no use but to rank 0.
  bool have_all_arrived() const;

  /// No-op when the peer is gone. A peer that cannot be told is lost, as receive() reports.
  void send(WorldRank rank, const ControlMessage& message) noexcept;
  int size() const { return static_cast<int>(peers_.size()); }
  void send_to_all(const ControlMessage& message) noexcept;
  void flush() noexcept;
  /// Says goodbye to everyone and closes.
  void leave() noexcept;
  /// Gives a peer up, which learns why if it still listens.
  void give_up(WorldRank rank, const std::string& reason);

  /// Hears what peers say, up to kMessagesAtATime of each. Returns true when more may wait. A
  /// CorruptionError of `on_message` is the peer's fault, which is lost then; all other errors are
  /// passed on, and the message is heard again the next time.
  using OnMessage = std::function<void(WorldRank rank, const ControlMessage& message)>;
  using OnLost = std::function<void(WorldRank rank, const std::string& reason)>;
  bool receive(const OnMessage& on_message, const OnLost& on_lost);

  void watch(Sleep& sleep) const;

 private:
  struct Peer {
    std::unique_ptr<ControlConnection> control;
    std::string_view unable;  ///< Why it cannot be told anything more; a literal, else empty.
    std::string lost;
    bool has_left = false;
    bool has_arrived = false;
    std::string farewell;  ///< What it has said of its end; empty while it stays.
  };
  const Peer& peer(WorldRank rank) const { return peers_[rank]; }
  static bool hear(WorldRank rank, Peer& peer, const OnMessage& on_message);

  ByRank<WorldRank, Peer> peers_;
};

}  // namespace mccl::engine
