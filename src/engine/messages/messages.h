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
//
// A rank that has something to write takes in what arrives meanwhile, from every peer: otherwise
// two ranks that both send before they receive would wait for room in each other's links for ever.
// A peer that does nothing of the kind reads nothing by itself. It is told when messages wait for
// room (ask_for_room), and takes them in. So a rank may send kEagerCredit bytes, with
// kEagerOverhead for each message, that nobody has asked for.
//
// Every message is in pending_ from its call to its end; all else only refers to it. Finding the
// partner of a message, a grant and a piece takes the same time however many are under way.
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
#include "engine/calls/operation_list.h"
#include "engine/driving/driver.h"
#include "engine/links/channel.h"
#include "mccl/error.h"

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
/// How long a link may be full before its peer is asked to take messages in.
inline constexpr std::chrono::milliseconds kAskAfter{1};

/// What advance() throws where messages of a member, or for it, can no longer be moved.
class MemberGone : public PeerError {
 public:
  /// `whole`: all that the member sent has been taken in; else it may only be sent nothing more.
  MemberGone(GroupRank member, const std::string& reason, bool whole);

  GroupRank member() const { return member_; }
  bool whole() const { return whole_; }

 private:
  GroupRank member_;
  bool whole_;
};

/// Used under the engine's progress lock.
class Messages {
 public:
  /// `payload_limit`: of a frame.
  Messages(Channels& channels, std::size_t payload_limit);

  void post_send(std::shared_ptr<Operation> operation);
  void post_receive(std::shared_ptr<Operation> operation);
  /// The peer sends no more: what is on its way is taken in without a receive, up to the end of its
  /// links, so that the peer need not wait until somebody receives it.
  void drain(GroupRank rank);
  /// The peer waits for room: its messages are taken in without a receive, up to this number.
  void take_in(GroupRank rank, std::uint64_t number);
  bool idle() const { return pending_.empty() && finished_.empty() && reading_ahead_ == 0; }

  /// Does what can be done now; false if that was nothing. Throws MismatchError, MemberGone,
  /// CorruptionError.
  bool advance();
  /// Whether something waits for room in a link.
  bool blocked() const { return blocked_; }
  /// Calls `ask` for each peer that messages have been kept from for kAskAfter by a full link, with
  /// the number of the last one; once for each number.
  template <typename Ask>
  void ask_for_room(Clock::time_point now, const Ask& ask);
  /// What got done since it was asked last, also in a pass that has thrown.
  OperationList take_finished() { return std::exchange(finished_, {}); }

  void watch(Sleep& sleep);

  /// A message whose deadline has passed; null when there is none. Takes no time while no deadline
  /// can have passed.
  Operation* find_late(Clock::time_point now);
  /// What a late message waits for: a clause for its error.
  std::string why_late(const Operation& late) const;
  /// Takes back a receive to which no message has come; null for any other operation, whose bytes
  /// may be on the way.
  std::shared_ptr<Operation> cancel(Operation& operation);

  /// After MemberGone: ends what waits for that member, and returns it; of the messages to it all,
  /// of those from it only if the member is `whole`. Nothing where the link still uses the memory
  /// of one.
  std::optional<OperationList> give_up(GroupRank rank, bool whole) noexcept;
  /// Everything that is pending, dropped from here; not what is finished.
  OperationList drop_all() noexcept;
  const OperationList& pending() const { return pending_; }

 private:
  /// One frame for a peer.
  struct Outgoing {
    Frame frame;
    std::span<const std::byte> payload;
    /// Owner of the payload; null for a frame that ends no message. It is done once the frame is
    /// sent, unless this is one piece of several.
    Operation* operation = nullptr;
  };
  /// A message that nobody has asked for yet: eager bytes, or a request.
  struct Unexpected {
    GroupRank source;
    Frame frame;
    std::vector<std::byte> payload;
    std::uint64_t order = 0;  ///< Among all that nobody had asked for.
  };
  /// A source, or none for any, and a tag.
  struct Match {
    std::int32_t source;
    std::uint32_t tag;
    bool operator==(const Match& other) const = default;
  };
  struct HashMatch {
    std::size_t operator()(const Match& match) const {
      return std::hash<std::uint64_t>()(
          (static_cast<std::uint64_t>(static_cast<std::uint32_t>(match.source)) << 32 | match.tag) *
          0x9e3779b97f4a7c15ULL);
    }
  };
  /// Items by what they match, of each the oldest first.
  template <typename Item>
  using Matches = std::unordered_map<Match, std::list<Item>, HashMatch>;
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
    std::list<Operation*> granted;       ///< Those with pieces to begin; the first is the next.
    std::unordered_map<std::uint64_t, Operation*> awaiting_grant;  ///< By number.
    std::unordered_map<std::uint64_t, Operation*> incoming;        ///< Asked for, by number.
    std::size_t posted = 0;            ///< Receives that only this peer can answer.
    std::size_t writing = 0;           ///< Frames that lanes hold.
    std::uint64_t next_number = 1;     ///< Of the message that this rank announces next.
    std::uint64_t next_announced = 1;  ///< Of the one that the peer does.
    std::size_t credit_used = 0;       ///< By eager messages to the peer.
    std::size_t credit_lent = 0;       ///< To eager messages of the peer.
    std::size_t credit_owed = 0;       ///< Of what is lent: free again, and the peer not told.
    std::uint64_t taken = 0;           ///< Announcements of the peer, with what they bring.
    std::uint64_t wanted = 0;          ///< See take_in(): until `taken` is this.
    bool draining = false;             ///< See drain().
    bool reads_ahead = false;          ///< Messages are taken in without a receive.
    std::uint64_t asked = 0;           ///< The last number of ask_for_room().
    Clock::time_point blocked_since = Clock::time_point::max();  ///< max(): it is not.

    bool has_to_write() const { return !announcements.empty() || !granted.empty() || writing > 0; }
    /// Drops everything, and needs no memory.
    void clear() noexcept;
  };

  // messages_write.cpp
  bool write_to(GroupRank rank, Peer& peer);
  bool write_lanes(Peer& peer, const Channel& channel);
  bool push(Peer& peer, LaneState& state, Lane& lane);
  std::optional<std::size_t> load(Peer& peer, const Channel& channel);
  Outgoing next_piece(Peer& peer);
  void has_gone(const Outgoing& sent);
  void give_up_writing(GroupRank rank, Peer& peer, const std::string& reason);

  // messages_read.cpp
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
  void take_request(GroupRank rank, Peer& peer, const Frame& request);
  void take_grant(GroupRank rank, Peer& peer, const Frame& grant);
  void take_credit(GroupRank rank, Peer& peer, const Frame& credit);
  void begin_piece(GroupRank rank, Peer& peer, LaneState& state, const Frame& frame);
  bool take_payload(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  bool take_eager(GroupRank rank, Peer& peer, LaneState& state, Lane& lane);
  bool take_piece(Peer& peer, LaneState& state, Lane& lane);

  /// The oldest posted receive for it, which is posted no more; null when there is none.
  Operation* match(GroupRank source, const Frame& frame);
  Matches<Unexpected>::iterator find_unexpected(const Operation& receive);
  void keep(Unexpected message);
  void check(const Operation& receive, GroupRank source, const Frame& frame) const;
  bool unpost(Operation& receive);
  void grant(GroupRank source, const Frame& request, Operation& receive);
  void deliver(const Unexpected& message, Operation& receive);
  void return_credit(GroupRank source, std::size_t cost);
  void announce(GroupRank rank, const Outgoing& outgoing);
  void finish(Operation& operation) noexcept;
  std::size_t pieces_of(std::size_t bytes) const;
  /// Bytes of a piece of a message of so many bytes; the piece is one of its pieces.
  std::size_t piece_size(std::size_t piece, std::size_t bytes) const;

  Channels& channels_;
  const std::size_t eager_bytes_;
  const std::size_t piece_bytes_;
  ByRank<GroupRank, Peer> peers_;
  Matches<Operation*> posted_;      ///< Receives that nobody has answered yet.
  Matches<Unexpected> unexpected_;  ///< By the source that they have.
  std::size_t posted_for_any_ = 0;  ///< Receives that any peer can answer.
  std::size_t reading_ahead_ = 0;   ///< Peers whose messages are taken in without a receive.
  bool blocked_ = false;            ///< Something waits for room in a link.
  std::uint64_t receives_ = 0;      ///< Posted ever.
  std::uint64_t arrivals_ = 0;      ///< Unexpected messages ever.
  OperationList pending_;           ///< All that are posted and not finished.
  OperationList finished_;          ///< And not yet taken.
  /// No deadline of a pending operation is before it.
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
