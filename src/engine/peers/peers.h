// The other processes of the job: a control connection to each, and who has gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rank.h"
#include "engine/driving/driver.h"
#include "engine/peers/control.h"

namespace mccl::engine {

/// This rank's own entry stays empty. Used under the engine's progress lock.
class Peers {
 public:
  explicit Peers(int size) : peers_(static_cast<std::size_t>(size)) {}

  void connect(WorldRank rank, std::unique_ptr<transport::Link> link);
  bool connected(WorldRank rank) const { return peer(rank).control != nullptr; }
  /// Why the peer is gone; empty while it is there.
  const std::string& lost(WorldRank rank) const { return peer(rank).lost; }

  /// It is gone, in good order: it goes on passing on what is for others.
  bool has_left(WorldRank rank) const { return peer(rank).has_left; }

  /// Whether all that are there have said so; of no use but to rank 0.
  bool have_all_arrived() const;

  /// Nothing happens when the peer is gone.
  void send(WorldRank rank, const ControlMessage& message);
  int size() const { return static_cast<int>(peers_.size()); }
  void send_to_all(const ControlMessage& message);
  void flush();
  /// Says goodbye to everyone and closes.
  void leave();
  /// Gives a peer up, which learns why if it still listens.
  void give_up(WorldRank rank, const std::string& reason);

  /// Errors of `on_message` are the caller's, but for CorruptionError: what the peer says is wrong.
  using OnMessage = std::function<void(WorldRank rank, const ControlMessage& message)>;
  using OnLost = std::function<void(WorldRank rank, const std::string& reason)>;
  void receive(const OnMessage& on_message, const OnLost& on_lost);

  void watch(Sleep& sleep) const;

 private:
  struct Peer {
    std::unique_ptr<ControlConnection> control;
    std::string lost;
    bool has_left = false;
    bool has_arrived = false;
    std::string farewell;  ///< What it has said of its end; empty while it stays.
  };
  const Peer& peer(WorldRank rank) const { return peers_[rank]; }

  ByRank<WorldRank, Peer> peers_;
};

}  // namespace mccl::engine
