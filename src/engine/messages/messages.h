// Point-to-point messages. Matches sends with receives by (source, tag), in order.
//
// A small message is sent immediately (eager), and waits in the receiver's memory if no receive has
// been posted. Credit bounds how many bytes of a sender may wait there. A larger message, or one
// for which the credit does not suffice, is announced (request). Its bytes follow in pieces once a
// receive has been posted and the receiver has asked for them (grant). So no order of sends and
// receives can make one message block another.
//
// A receiver that can read the memory of the sender's process (MCCL_CROSS_MEMORY) pulls a larger
// message instead: the request contains the address of the message, and the receiver copies the
// bytes from there and then says so (pulled). If the system refuses, the receiver asks for the
// bytes as usual.
//
// Receives match eager messages and requests in the order in which these frames arrive, so both are
// sent on the first rail (parallel link), like grants and credit. All these frames are sent before
// pieces, which may use any rail. Pieces are small, so that no frame waits long behind a piece. The
// pieces of several messages to one peer are sent in turn.
//
// A rank whose frames wait for space in a link also reads from every peer. Otherwise two ranks that
// both send before they receive would wait forever for space in each other's links. A rank without
// pending messages does not read on its own. A peer whose messages wait for space in a link asks
// that rank to read (ask_for_room). The asked rank then takes these messages in, that is, reads
// them before a receive is posted. So a rank may send kEagerCredit bytes, counting kEagerOverhead
// for each message, before any receive is posted.
//
// Every operation is in pending_ from its call to its end. The other structures only refer to the
// operation. Their maps make it quick to find the operation for an arriving frame, however many
// operations are pending.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/rank.h"
#include "engine/calls/operation.h"
#include "engine/driving/driver.h"
#include "engine/links/channel.h"
#include "mccl/error.h"

namespace mccl::engine {

/// Maximum size of a message sent without a grant, in bytes; less if the frame limit is smaller.
inline constexpr std::size_t kEagerBytes = 32 << 10;
/// Maximum size of a piece of a granted message, in bytes; less if the frame limit is smaller.
inline constexpr std::size_t kPieceBytes = 256 << 10;
/// Credit, in bytes, that each receiver gives to each sender. Each eager message uses up credit,
/// until the receiver returns this credit.
inline constexpr std::size_t kEagerCredit = 4 << 20;
/// Bytes of credit that an eager message uses in addition to its size, so that the number of empty
/// messages is limited too. They cover the memory that a receiver needs for the record of one
/// message.
inline constexpr std::size_t kEagerOverhead = 256;
/// Maximum number of requests of a sender that the receiver has not answered. The sender holds
/// later messages back.
inline constexpr std::size_t kMostRequests = std::size_t{1} << 18;
/// Maximum number of messages of one sender for which a receiver keeps a record before a receive is
/// posted: the requests, and the eager messages for which the credit suffices. A record takes some
/// 200 bytes.
inline constexpr std::size_t kMostKept = kMostRequests + kEagerCredit / kEagerOverhead;
/// Bytes that one advance() may move to a peer, or from a lane (link), before the engine does other
/// work.
inline constexpr std::size_t kPassBytes = 512 << 10;
/// Bytes counted towards kPassBytes for each frame in addition to its payload.
inline constexpr std::size_t kFrameCost = 2 << 10;
/// If a link has had no space for this time, this rank asks the peer to read messages even if the
/// peer has posted no receives for them.
inline constexpr std::chrono::milliseconds kAskAfter{1};

/// Thrown by advance() if messages to or from a member can no longer be transferred.
class MemberGone : public PeerError {
 public:
  /// `whole` is true if everything that the member sent has been received, so that no more data
  /// from it will arrive. If false, only sending to the member has failed, and data from the member
  /// may still arrive.
  MemberGone(GroupRank member, const std::string& reason, bool whole);

  GroupRank member() const { return member_; }
  bool whole() const { return whole_; }

 private:
  GroupRank member_;
  bool whole_;
};

/// The point-to-point messages of one group. Used under the engine's progress lock.
class Messages {
 public:
  /// `payload_limit` is the maximum payload of a frame, in bytes.
  Messages(Channels& channels, std::size_t payload_limit);

  // Defined in messages_at_once.cpp: one small message on the caller's thread, without an
  // Operation.

  /// Sends a small message if no other frame to the peer is pending, the credit suffices, and the
  /// link is connected; otherwise returns `no`. `not_yet`: the link has not accepted the whole
  /// message. Call go_on_with() next; the driver then sends the rest.
  AtOnce send_at_once(Task& task);
  void go_on_with(std::shared_ptr<Operation> send) noexcept;
  /// True if a write to the member may make a transport need the driver at an earlier time.
  bool sets_deadlines(GroupRank rank) const {
    const Channel& channel = channels_.at(transport::Purpose::point_to_point, rank);
    return channel.has(0) && channel.lanes.front()->link().sets_deadlines();
  }
  /// True if the task may receive the next message from its peer without post_receive().
  bool may_receive_at_once(const Task& task);
  /// Receives the message for which may_receive_at_once() returned true. `not_yet`: the message has
  /// not arrived in full; call this again, with no other call in between. `no`: another message
  /// arrived first, or this one does not fit into the link's memory. Throws what advance() throws.
  AtOnce receive_at_once(Task& task);

  void post_send(std::shared_ptr<Operation> operation);
  void post_receive(std::shared_ptr<Operation> operation);
  /// Called when the peer will send no more messages. From now on, reads the peer's messages in
  /// flight even before receives are posted, until the peer's links end. Otherwise the peer would
  /// have to keep its links open until the receives are posted.
  void drain(GroupRank rank);
  /// Called when the peer waits for space in a link. Reads the peer's messages up to message number
  /// `number` even before receives are posted.
  void take_in(GroupRank rank, std::uint64_t number);
  bool idle() const { return pending_.empty() && finished_.empty() && reading_ahead_ == 0; }
  /// True if the callers of all pending messages have promised to wait for them, and this rank has
  /// nothing else to send or to read. May return false if many messages are pending.
  bool attended() const;

  /// Does all work that is possible now. Returns false if no message made progress. Throws
  /// MismatchError if a message does not fit its receive, MemberGone (see above), and
  /// CorruptionError for invalid data.
  bool advance();
  /// True if the last advance() left frames that wait for space in a link.
  bool blocked() const { return blocked_; }
  /// Calls `ask(peer, number)` for each peer whose link has had no space for pending messages for
  /// the time kAskAfter. `number` is the number of the last message to the peer. Does not call
  /// `ask` again for the same number.
  template <typename Ask>
  void ask_for_room(Clock::time_point now, const Ask& ask);
  /// Removes and returns the operations finished since the last call, including those that
  /// advance() finished before it threw.
  OperationList take_finished() { return std::exchange(finished_, {}); }

  void watch(Sleep& sleep);

  /// Returns a receive that accepts any source and has not matched a message yet; null if there is
  /// none.
  Operation* posted_for_any();
  /// Returns an operation whose deadline has passed, or null.
  Operation* find_late(Clock::time_point now);
  /// Returns a clause that says what the operation waits for. Used in the error of an operation
  /// that has timed out.
  std::string why_late(const Operation& late) const;
  /// Cancels and returns a receive for which no message has arrived. Returns null for any other
  /// operation, because its bytes may be in flight.
  std::shared_ptr<Operation> cancel(Operation& operation);

  /// Called after MemberGone. Removes and returns the operations that need that member: all sends
  /// to it, and if `whole`, all receives from it. Removes nothing and returns nullopt if a link
  /// still reads the memory of a send.
  std::optional<OperationList> give_up(GroupRank rank, bool whole) noexcept;
  /// Drops and returns all pending operations. Finished operations remain.
  OperationList drop_all() noexcept;
  const OperationList& pending() const { return pending_; }

 private:
  /// One frame to send to a peer.
  struct Outgoing {
    Frame frame = {};
    std::span<const std::byte> payload = {};
    /// The operation that completes when this frame has been sent or, if it is a piece, when all
    /// pieces of the message have been sent. The operation owns the payload. Null if the frame
    /// completes no operation.
    Operation* operation = nullptr;
  };
  /// A message for which no receive has been posted: an eager message with its bytes, or a request,
  /// whose payload may be an address.
  struct Unexpected {
    GroupRank source;
    Frame frame;
    std::vector<std::byte> payload;
    std::uint64_t order = 0;  ///< Number among all unexpected messages, in order of arrival.
  };
  using Match = std::pair<std::int32_t, std::uint32_t>;  ///< The source (-1: any) and the tag.
  /// Items by source and tag; each list has the oldest item first.
  template <typename Item>
  using Matches = std::map<Match, std::list<Item>>;
  struct ArrivingPiece {
    std::uint64_t message;
    std::size_t piece;
  };
  /// The messages that a lane is sending and receiving.
  struct LaneState {
    std::optional<Outgoing> writing;
    std::variant<std::monostate, Unexpected, ArrivingPiece> reading;

    bool between_messages() const { return reading.index() == 0; }
  };
  struct Peer {
    std::vector<LaneState> lanes;
    std::deque<Outgoing> announcements;  ///< Queued frames other than pieces, in order.
    /// Granted sends with pieces whose sending has not begun. The next piece to be sent belongs to
    /// the first of these sends.
    std::list<Operation*> granted;
    /// Sends that wait for the receiver's grant, or until it has pulled them, by message number.
    std::unordered_map<std::uint64_t, Operation*> awaiting_grant;
    /// Sends that are not announced yet, in order, because kMostRequests wait for an answer.
    std::deque<Operation*> held;
    std::list<Operation*> pulls;  ///< Receives whose messages are being pulled, in order.
    /// Granted receives whose pieces have not all arrived, by message number.
    std::unordered_map<std::uint64_t, Operation*> incoming;
    std::size_t posted = 0;            ///< Number of posted receives that name this peer.
    std::size_t writing = 0;           ///< Number of lanes that are sending a frame.
    std::uint64_t next_number = 1;     ///< Number of the next message to the peer.
    std::uint64_t next_announced = 1;  ///< Number that the next message from the peer must have.
    std::size_t credit_used = 0;       ///< Bytes of credit in use by messages to the peer.
    std::size_t credit_lent = 0;       ///< Bytes of credit in use by messages from the peer.
    std::size_t credit_owed = 0;       ///< Part of credit_lent that the next credit frame returns.
    std::size_t kept = 0;     ///< Number of messages from the peer that wait for a receive.
    std::uint64_t taken = 0;  ///< Number of requests and whole eager messages read from the peer.
    /// Until `taken` reaches this number, messages are read before their receives are posted.
    std::uint64_t wanted = 0;
    bool draining = false;     ///< True once drain() was called.
    bool reads_ahead = false;  ///< True if messages are read before receives are posted.
    std::uint64_t asked = 0;   ///< Last number passed to `ask` in ask_for_room().
    /// Time since which frames to the peer wait for space in a link; max() if none waits.
    Clock::time_point blocked_since = Clock::time_point::max();

    bool has_to_write() const { return !announcements.empty() || !granted.empty() || writing > 0; }
    /// Drops all frames and operations of the peer. Allocates no memory.
    void clear() noexcept;
  };

  // Defined in messages_at_once.cpp:
  Lane* first_lane(GroupRank rank, Peer& peer);
  AtOnce receive_decoded(GroupRank rank, Peer& peer, Lane& lane, Task& task);
  void end_receive_at_once(GroupRank rank, Peer& peer);

  void announce(Peer& peer, Operation& send);
  /// Announces sends that were held back, as far as the number of unanswered requests allows.
  void announce_held(Peer& peer);

  // Defined in messages_write.cpp:
  bool write_to(GroupRank rank, Peer& peer);
  bool write_lanes(Peer& peer, const Channel& channel);
  bool push(Peer& peer, LaneState& state, Lane& lane);
  std::optional<std::size_t> load(Peer& peer, const Channel& channel);
  static std::span<const std::byte> lend(Operation& send);
  Outgoing next_piece(Peer& peer);
  void has_gone(const Outgoing& sent);
  void give_up_writing(GroupRank rank, Peer& peer, const std::string& reason);

  // Defined in messages_read.cpp:
  bool needs(const Peer& peer) const;
  bool wants_to_read(const Peer& peer) const;
  void note_ahead(Peer& peer) noexcept;
  void end_reading_ahead(Peer& peer) noexcept;
  bool read_from(GroupRank rank, Peer& peer);
  bool read_lane(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void take_header(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void check_form(GroupRank rank, const Peer& peer, const LaneState& state,
                  const Frame& frame) const;
  void take_announcement(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void count_announcement(GroupRank rank, Peer& peer, const Frame& frame);
  void lend_credit(GroupRank rank, Peer& peer, std::size_t bytes);
  void take_grant(GroupRank rank, Peer& peer, const Frame& grant);
  void take_credit(GroupRank rank, Peer& peer, const Frame& credit);
  void take_pulled(GroupRank rank, Peer& peer, const Frame& pulled, Lane& lane);
  void begin_piece(GroupRank rank, Peer& peer, LaneState& state, const Frame& frame);
  bool take_payload(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  bool take_announced(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  void match_or_keep(GroupRank rank, Peer& peer, Unexpected message);
  bool pull(GroupRank rank, Peer& peer, Lane& lane);
  bool take_piece(Peer& peer, LaneState& state, Lane& lane);

  /// Finds and unposts the oldest posted receive that matches the frame; null if there is none.
  Operation* match(GroupRank source, const Frame& frame);
  Matches<Unexpected>::iterator find_unexpected(const Operation& receive);
  void keep(Unexpected message);
  void check(const Call& receive, GroupRank source, const Frame& frame) const;
  bool unpost(Operation& receive);
  /// Pulls the message, or asks for it.
  void accept(const Unexpected& request, Operation& receive);
  void grant(GroupRank source, Operation& receive);
  void deliver(const Unexpected& message, Operation& receive);
  /// Copies the payload of an eager message to the memory of its receive.
  void deliver(GroupRank source, std::span<const std::byte> payload, Task& receive);
  void return_credit(GroupRank source, std::size_t cost);
  void finish(Operation& operation) noexcept;
  std::size_t pieces_of(std::size_t bytes) const;
  /// Size in bytes of piece number `piece` of a message of `bytes` bytes. The message must have
  /// that piece.
  std::size_t piece_size(std::size_t piece, std::size_t bytes) const;

  Channels& channels_;
  const std::size_t eager_bytes_;
  const std::size_t piece_bytes_;
  ByRank<GroupRank, Peer> peers_;
  Matches<Operation*> posted_;      ///< Receives that no message has matched yet.
  Matches<Unexpected> unexpected_;  ///< Keyed by the sender's rank and the tag.
  std::size_t posted_for_any_ = 0;  ///< Number of posted receives that match any source.
  std::size_t reading_ahead_ = 0;   ///< Number of peers whose `reads_ahead` is set.
  bool blocked_ = false;            ///< See blocked().
  FrameBytes expected_{};           ///< The header that receive_at_once() expects.
  std::uint64_t receives_ = 0;      ///< Number of receives posted so far.
  std::uint64_t arrivals_ = 0;      ///< Number of unexpected messages so far.
  OperationList pending_;           ///< Operations that are posted and not finished.
  OperationList finished_;          ///< Finished operations not yet returned by take_finished().
  /// Lower bound of the deadlines of all pending operations.
  Clock::time_point next_deadline_ = Clock::time_point::max();
};

template <typename Ask>
void Messages::ask_for_room(Clock::time_point now, const Ask& ask) {
  for (GroupRank rank(0); rank < peers_.end_rank(); ++rank) {
    Peer& peer = peers_[rank];
    const std::uint64_t last = peer.next_number - 1;
    if (!peer.has_to_write() || peer.asked >= last) continue;
    if (!channels_.at(transport::Purpose::point_to_point, rank).connected()) continue;
    peer.blocked_since = std::min(peer.blocked_since, now);
    if (now - peer.blocked_since < kAskAfter) continue;
    peer.asked = last;
    ask(rank, last);
  }
}

}  // namespace mccl::engine
