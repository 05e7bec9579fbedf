// Point to point: matches sends with receives by (source, tag) in order.
//
// A small message travels at once (eager) and waits at the receiver when nobody asks for it yet;
// how much may wait is bounded by credit. A larger one is announced (request), and its bytes follow
// in pieces once the receiver has posted its memory (grant), so that no order of sends and receives
// can make one message block another.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/channel.h"
#include "engine/operation.h"

namespace mccl::engine {

/// Largest message that travels without a grant.
inline constexpr std::size_t kEagerBytes = 32 << 10;
/// Most eager bytes that may wait at one receiver.
inline constexpr std::size_t kEagerCredit = 4 << 20;

/// Used under the engine's progress lock.
class Messages {
 public:
  using Finished = std::vector<std::shared_ptr<Operation>>;

  Messages(Channels& channels, std::size_t piece_bytes);

  void post_send(std::shared_ptr<Operation> operation);
  void post_receive(std::shared_ptr<Operation> operation);
  bool idle() const { return active_ == 0; }

  /// Does what can be done now; appends what got done. False if that was nothing.
  bool advance(Finished& finished);

  void watch(std::vector<pollfd>& descriptors);

  /// Takes back an operation that has timed out. False when its bytes are already on the way, so
  /// that it cannot be taken back.
  bool cancel(const Operation& operation);

  /// Everything pending, dropped from here.
  Finished drop_all();
  /// For the watchdog.
  std::vector<std::shared_ptr<Operation>> pending() const;

 private:
  /// One frame waiting to be written to a peer.
  struct Outgoing {
    Frame frame;
    std::span<const std::byte> payload;
    std::shared_ptr<Operation> operation;  ///< Whose bytes they are; null for requests and answers.
  };
  /// A message that nobody has asked for yet: eager bytes, or a request.
  struct Unexpected {
    int source;
    Frame frame;
    std::vector<std::byte> payload;
  };
  /// A granted message that is coming in.
  struct Incoming {
    std::shared_ptr<Operation> operation;
    std::size_t bytes_left;
  };
  struct Peer {
    Channel* channel = nullptr;
    std::deque<Outgoing> outgoing;
    std::vector<Outgoing> writing;  ///< By rail: what the lane is sending.
    std::map<std::uint64_t, std::shared_ptr<Operation>> awaiting_grant;
    std::map<std::uint64_t, Incoming> incoming;
    std::optional<Unexpected> arriving;  ///< An eager message whose bytes are not all here.
    std::uint64_t next_message = 1;
    std::size_t eager_in_flight = 0;
    std::size_t credit_owed = 0;
  };

  bool write_to(int rank, Peer& peer, Finished& finished);
  bool push(Peer& peer, std::size_t rail, Finished& finished);
  bool read_from(int rank, Peer& peer, Finished& finished);
  bool read_lanes(int rank, Peer& peer, Channel& channel, Finished& finished);
  bool wants_to_read(int rank, const Peer& peer) const;
  void take_header(int rank, Peer& peer, Lane& lane);
  bool take_payload(int rank, Peer& peer, Lane& lane, Finished& finished);
  bool take_eager(int rank, Peer& peer, Lane& lane, Finished& finished);
  bool take_piece(int rank, Peer& peer, Lane& lane, Finished& finished);
  void granted(int rank, Peer& peer, const Frame& frame);
  /// The oldest posted receive for it; null when there is none.
  std::shared_ptr<Operation> match(int source, const Frame& frame);
  void check(const Operation& receive, int source, const Frame& frame) const;
  void grant(int source, const Frame& request, std::shared_ptr<Operation> receive);
  void deliver(const Unexpected& message, Operation& receive);
  void return_credit(int source, std::size_t bytes);
  void queue(int rank, Outgoing outgoing);
  void finish(std::shared_ptr<Operation> operation, Finished& finished);

  Channels& channels_;
  const std::size_t piece_bytes_;
  std::vector<Peer> peers_;
  std::list<std::shared_ptr<Operation>>
      posted_;                        ///< Receives nobody has answered yet, oldest first.
  std::list<Unexpected> unexpected_;  ///< Oldest first.
  std::list<std::shared_ptr<Operation>> delivered_;  ///< Done while being posted.
  std::size_t active_ = 0;                           ///< Operations not finished.
};

}  // namespace mccl::engine
