// Connects to one peer. Tries all its addresses repeatedly until a connection is proven, that is,
// until the peer's handshake has succeeded.
//
// An established connection is kept until the deadline, even if the peer does not answer for a long
// time. The peer may be busy, and may already consider the connection proven.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/connections/conversation.h"
#include "rendezvous/connections/handshake.h"

namespace mccl::rendezvous {

/// The first relay on the path to a peer, and the parameters of the handshake with that relay.
struct FirstHop {
  Party self;
  int rank = -1;
  LinkKey key;
};

/// Time for which an address must refuse connections before the process that listens there counts
/// as dead. Used only for processes that listen for their whole lifetime.
inline constexpr Clock::duration kRefusedFor = milliseconds(200);

/// Returns the time limit of one attempt to reach a rank again within `patience`. It is short,
/// because an attempt that began during an outage would otherwise wait for the system's next
/// retransmission long after the outage.
inline Clock::duration attempt_limit_within(Clock::duration patience) {
  return std::clamp<Clock::duration>(patience / 20, milliseconds(100), milliseconds(500));
}

/// The pause before the candidates are tried again starts at kFirstBackOff and doubles up to
/// kLongestBackOff.
inline constexpr Clock::duration kFirstBackOff = milliseconds(20);
inline constexpr Clock::duration kLongestBackOff = milliseconds(500);

struct DialRequest {
  Party self;
  int peer = -1;
  LinkKey key;
  Clock::time_point deadline = {};
  std::vector<Candidate> candidates = {};
  /// Time for which an attempt may hang before the next candidate is tried in parallel.
  Clock::duration stagger = milliseconds(250);
  /// Time limit of one attempt to connect.
  Clock::duration attempt_limit = std::chrono::seconds(2);
  Clock::duration longest_back_off = kLongestBackOff;
  /// Time limit of the handshake after an attempt has connected; by default only `deadline`.
  Clock::duration handshake_limit = Clock::duration::max();
  std::size_t buffer_bytes = 0;
  /// The dial fails once all candidates have refused connections for this long; 0 disables this
  /// limit.
  Clock::duration refused_for{};
  /// True if the dial fails even once a single candidate has refused connections for `refused_for`.
  /// All candidates must then be known to be addresses of the peer.
  bool one_refusal_suffices = false;
  /// If set, the candidates are addresses of this relay, which passes the connection on to the
  /// peer.
  std::optional<FirstHop> through = {};
  /// Earliest time of the first attempt.
  Clock::time_point not_before{};
  /// True if the dial tries each candidate once, and fails if no attempt succeeds.
  bool once = false;
  bool limits_silence = false;  ///< See limit_silence().
};

class Dial {
 public:
  explicit Dial(DialRequest request);

  /// Does all work that is possible without blocking. Returns true once the dial has ended: see
  /// take_socket() and reason().
  bool advance(Clock::time_point now);
  /// Blocks until the dial has ended, and returns take_socket().
  Socket run();

  /// Returns the connection whose handshake has succeeded; empty if the dial failed.
  Socket take_socket() { return std::move(socket_); }
  const std::string& reason() const { return reason_; }
  /// See Handshake::link_number(). Set once the handshake has succeeded.
  std::uint64_t link_number() const { return link_number_; }
  /// Returns each candidate with the result of its last attempt, for an error text.
  std::string outcomes() const;
  /// True if the peer's settings differ from this rank's, so that another dial would fail too.
  bool was_refused() const { return was_refused_; }
  /// The candidate whose handshake has succeeded.
  const Candidate& winner() const { return request_.candidates[winner_]; }
  const Candidate& first_choice() const { return request_.candidates.front(); }
  const std::vector<Candidate>& candidates() const { return request_.candidates; }

  int peer() const { return request_.peer; }
  const LinkKey& key() const { return request_.key; }
  /// The errno of the last attempt that failed to connect; 0 if none failed.
  int last_error() const { return last_error_; }
  /// Time at which the last failed attempt to connect began.
  Clock::time_point last_tried() const { return last_tried_; }

  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

 private:
  struct Attempt {
    std::size_t candidate = 0;
    Clock::time_point begun;
    /// Deadline for connecting; once connected, the deadline of the handshake.
    Clock::time_point deadline;
    Socket connecting;  ///< Moved into `conversation` once connected.
    std::optional<Conversation> conversation;
    /// True while the handshake is with the relay request_.through, rather than with the peer.
    bool with_first_hop = false;
  };
  enum class Progress { waiting, failed, done, refused };

  void start_attempts(Clock::time_point now);
  void begin_round(Clock::time_point now);
  /// True if this round has not tried every candidate yet.
  bool untried() const { return next_candidate_ < request_.candidates.size(); }
  void start(std::size_t candidate, Clock::time_point now);
  Progress advance(Attempt& attempt, Clock::time_point now);
  Progress finish_connecting(Attempt& attempt);
  Progress talk_to_peer(Attempt& attempt);
  /// Records the outcome of the attempt, and returns Progress::failed.
  Progress failed(const Attempt& attempt, std::string outcome);
  void could_not_connect(int error, Clock::time_point begun);
  void fail(Clock::time_point now);
  std::string advice() const;
  Candidate& candidate_of(const Attempt& attempt) { return request_.candidates[attempt.candidate]; }

  DialRequest request_;
  Clock::time_point begun_;
  std::list<Attempt> attempts_;
  std::size_t next_candidate_ = 0;
  Clock::time_point next_start_;
  Clock::duration back_off_;
  bool all_refused_ = true;  ///< True if all attempts of this round got ECONNREFUSED.
  int last_error_ = 0;
  Clock::time_point last_tried_{};
  std::optional<Clock::time_point> refused_since_;
  std::optional<Clock::time_point> first_refusal_;  ///< Empty once a candidate has connected.
  bool is_refused_ = false;  ///< True if refusals have lasted for `refused_for`.
  int lacks_files_ = 0;      ///< The errno if an attempt found no free descriptor; else 0.
  Clock::time_point lacks_files_since_;
  /// True once the peer has proved on one attempt that it belongs to the job. The other attempts
  /// were then dropped, and none may start in parallel: the peer could accept both connections.
  bool proven_ = false;
  std::size_t winner_ = 0;
  std::uint64_t link_number_ = 0;
  Socket socket_;
  std::string reason_;
  bool was_refused_ = false;
};

}  // namespace mccl::rendezvous
