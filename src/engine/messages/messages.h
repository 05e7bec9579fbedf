// Point to point: matches sends with receives by (source, tag) in order.
//
// A small message travels at once (eager) and waits at the receiver when nobody asks for it yet;
// how much may wait is bounded by credit. A larger one, or one that there is no credit for, is
// announced (request), and its bytes follow in pieces once the receiver has posted its memory
// (grant), so that no order of sends and receives can make one message block another.
//
// The order of eager messages and requests is the order of matching, so they go on the first rail,
// and grants and credit with them. All of these go before pieces, which go on any rail and are so
// small that nothing waits long behind one; the pieces of several messages to a peer take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/rank.h"
#include "engine/calls/operation.h"
#include "engine/driving/driver.h"
#include "engine/links/channel.h"

namespace mccl::engine {

/// Largest message that travels without a grant, where a frame may be as large.
inline constexpr std::size_t kEagerBytes = 32 << 10;
/// Largest piece of a granted message, where a frame may be as large.
inline constexpr std::size_t kPieceBytes = 256 << 10;
/// Most that the eager messages of one sender may cost that wait at one receiver.
inline constexpr std::size_t kEagerCredit = 4 << 20;
/// What an eager message costs beside its bytes, so that empty ones are bounded too: about what a
/// receiver keeps for it.
inline constexpr std::size_t kEagerOverhead = 256;
/// What one pass may move on one way before it looks at all else, ...
inline constexpr std::size_t kPassBytes = 512 << 10;
/// ... where a frame takes as long as so many bytes.
inline constexpr std::size_t kFrameCost = 2 << 10;

/// Used under the engine's progress lock.
class Messages {
 public:
  using Finished = std::vector<std::shared_ptr<Operation>>;

  /// `payload_limit`: of a frame.
  Messages(Channels& channels, std::size_t payload_limit);

  void post_send(std::shared_ptr<Operation> operation);
  void post_receive(std::shared_ptr<Operation> operation);
  bool idle() const { return active_ == 0; }

  /// Does what can be done now; false if that was nothing. Throws MismatchError, PeerError,
  /// CorruptionError.
  bool advance();
  /// What got done since it was asked last, also in a pass that has thrown.
  Finished take_finished();

  void watch(Sleep& sleep);

  /// Takes back an operation that has timed out. False when its bytes are already on the way, so
  /// that it cannot be taken back.
  bool cancel(const Operation& operation);

  /// Everything pending, dropped from here; not what is finished.
  Finished drop_all();
  /// For the watchdog.
  Finished pending() const;

 private:
  /// One frame for a peer.
  struct Outgoing {
    Frame frame;
    std::span<const std::byte> payload;
    /// Whose bytes they are. But for a piece, it is done when they have gone.
    std::shared_ptr<Operation> operation;
  };
  /// A message that the peer has asked for.
  struct Granted {
    std::uint64_t number;
    std::shared_ptr<Operation> operation;
    std::size_t pieces;
    std::size_t begun = 0;  ///< Pieces that a lane has, or has had.
    std::size_t gone = 0;
  };
  /// A message that nobody has asked for yet: eager bytes, or a request.
  struct Unexpected {
    GroupRank source;
    Frame frame;
    std::vector<std::byte> payload;
  };
  /// A message that this rank has asked for.
  struct Incoming {
    std::shared_ptr<Operation> operation;
    std::vector<bool> begun;  ///< By piece: a lane brings it, or has brought it.
    std::size_t pieces_left;
  };
  struct ArrivingPiece {
    std::uint64_t message;
    std::size_t piece;
  };
  /// What a lane is in the midst of, both ways.
  struct LaneState {
    std::optional<Outgoing> writing;
    std::variant<std::monostate, Unexpected, ArrivingPiece> reading;

    bool between_messages() const { return reading.index() == 0; }
  };
  struct Peer {
    std::vector<LaneState> lanes;
    std::deque<Outgoing> announcements;  ///< All but pieces, in order.
    std::list<Granted> granted;          ///< The next piece is of the first that has one.
    std::map<std::uint64_t, std::shared_ptr<Operation>> awaiting_grant;
    std::map<std::uint64_t, Incoming> incoming;
    std::uint64_t next_number = 1;     ///< Of the message that this rank announces next.
    std::uint64_t next_announced = 1;  ///< Of the one that the peer does.
    std::size_t credit_used = 0;       ///< By eager messages to the peer.
    std::size_t credit_lent = 0;       ///< To eager messages of the peer.
    std::size_t credit_owed = 0;       ///< Of what is lent: free again, and the peer not told.

    bool has_to_write() const;
  };

  // messages_write.cpp
  bool write_to(GroupRank rank, Peer& peer);
  bool write_lanes(Peer& peer, const Channel& channel);
  bool push(Peer& peer, LaneState& state, Lane& lane);
  std::optional<std::size_t> load(Peer& peer, const Channel& channel);
  Outgoing next_piece(Peer& peer);
  void has_gone(Peer& peer, Outgoing sent);
  void give_up_writing(GroupRank rank, Peer& peer, const std::string& reason);

  // messages_read.cpp
  bool wants_to_read(GroupRank rank, const Peer& peer) const;
  bool read_from(GroupRank rank, Peer& peer);
  bool read_lane(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void take_header(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void check_form(GroupRank rank, const Peer& peer, const LaneState& state,
                  const Frame& frame) const;
  void take_announcement(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void take_request(GroupRank rank, const Frame& request);
  void take_grant(GroupRank rank, Peer& peer, const Frame& grant);
  void take_credit(GroupRank rank, Peer& peer, const Frame& credit);
  void begin_piece(GroupRank rank, Peer& peer, LaneState& state, const Frame& frame);
  bool take_payload(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  bool take_eager(GroupRank rank, LaneState& state, Lane& lane);
  bool take_piece(Peer& peer, LaneState& state, Lane& lane);

  static bool may_come_from(const Operation& receive, GroupRank source) {
    return receive.call.peer < 0 || GroupRank(receive.call.peer) == source;
  }
  /// The oldest posted receive for it; null when there is none.
  std::shared_ptr<Operation> match(GroupRank source, const Frame& frame);
  void check(const Operation& receive, GroupRank source, const Frame& frame) const;
  void grant(GroupRank source, const Frame& request, std::shared_ptr<Operation> receive);
  void deliver(const Unexpected& message, std::shared_ptr<Operation> receive);
  void return_credit(GroupRank source, std::size_t cost);
  void announce(GroupRank rank, Outgoing outgoing);
  void finish(std::shared_ptr<Operation> operation);
  std::size_t pieces_of(std::size_t bytes) const;
  /// Bytes of a piece of a message of so many bytes; the piece is one of its pieces.
  std::size_t piece_size(std::size_t piece, std::size_t bytes) const;

  Channels& channels_;
  const std::size_t eager_bytes_;
  const std::size_t piece_bytes_;
  ByRank<GroupRank, Peer> peers_;
  /// Receives nobody has answered yet, oldest first.
  std::list<std::shared_ptr<Operation>> posted_;
  std::list<Unexpected> unexpected_;  ///< Oldest first.
  Finished finished_;                 ///< And not yet taken.
  std::size_t active_ = 0;            ///< Operations posted and not yet taken back.
};

}  // namespace mccl::engine
