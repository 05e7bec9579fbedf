// The other processes of the job: the control connection to each, and which of them have left or
// are lost.
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

/// The control connections to all peers, indexed by rank; this rank's own entry is unused. Used
/// under the engine's progress lock.
class Peers {
 public:
  /// Maximum number of messages that one call of receive() handles from each peer.
  static constexpr int kMessagesAtATime = 64;

  explicit Peers(int size) : peers_(static_cast<std::size_t>(size)) {}

  /// `is_relayed`: true if the link passes through other ranks, which relay its data.
  void connect(WorldRank rank, std::unique_ptr<transport::Link> link, bool is_relayed = false);
  bool connected(WorldRank rank) const { return peer(rank).control != nullptr; }
  /// Describes the connection to a connected peer: its addresses and the peer's host.
  std::string description(WorldRank rank) const { return peer(rank).control->link().description(); }
  /// The reason in the goodbye of a connected peer; empty if no goodbye has arrived.
  const std::string& farewell(WorldRank rank) const { return peer(rank).farewell; }
  /// The reason why the peer is gone; empty while it is connected.
  const std::string& lost(WorldRank rank) const { return peer(rank).lost; }

  /// True if the peer left in good order, with a goodbye. If the peer is a relay, it still forwards
  /// data of other ranks.
  bool has_left(WorldRank rank) const { return peer(rank).has_left; }

  /// True if the peer's process has left the job or is known to have ended. False if the process
  /// may be alive, but cannot be reached.
  bool has_ended(WorldRank rank) const { return peer(rank).has_left || peer(rank).has_ended; }

  /// True if every connected peer has sent `arrived`. Meaningful on rank 0 only.
  bool have_all_arrived() const;

  /// Sends a message; no-op if the peer is gone. If the message cannot be sent, the next receive()
  /// reports the peer as lost.
  void send(WorldRank rank, const ControlMessage& message) noexcept;
  int size() const { return static_cast<int>(peers_.size()); }
  void flush() noexcept;
  /// Sends goodbye to every peer and closes all connections.
  void leave() noexcept;
  /// Treats the peer as lost. First sends the peer the reason, in case the peer is still alive.
  /// `has_ended`: true if its process is known to have ended.
  void give_up(WorldRank rank, const std::string& reason, bool has_ended = false);

  using OnMessage = std::function<void(WorldRank rank, const ControlMessage& message)>;
  using OnLost = std::function<void(WorldRank rank, const std::string& reason)>;
  /// Handles messages from peers, up to kMessagesAtATime of each. Returns true if more messages may
  /// be waiting. If `on_message` throws CorruptionError, the peer is treated as lost, because it
  /// sent an invalid message. All other exceptions propagate, and the next call handles the message
  /// again.
  bool receive(const OnMessage& on_message, const OnLost& on_lost);

  void watch(Sleep& sleep) const;

 private:
  struct Peer {
    std::unique_ptr<ControlConnection> control;
    /// The reason why sending failed, as a string literal; empty while sending works.
    std::string_view unable;
    std::string lost;
    bool has_left = false;
    bool is_relayed = false;
    bool has_ended = false;  ///< True if the peer's process is known to have ended.
    bool has_arrived = false;
    std::string farewell;  ///< Reason in the peer's goodbye; empty until the goodbye arrives.
  };
  const Peer& peer(WorldRank rank) const { return peers_[rank]; }
  static bool hear(WorldRank rank, Peer& peer, const OnMessage& on_message);

  ByRank<WorldRank, Peer> peers_;
};

}  // namespace mccl::engine
