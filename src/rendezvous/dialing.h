// Connecting to one peer: all its addresses, again and again, until one of them proves to be it.
//
// A connection that stands is kept, however long its answer takes: a peer that is busy, or has no
// core, answers it late, and may believe the matter settled before the answer is read here.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "rendezvous/candidates.h"
#include "rendezvous/conversation.h"
#include "rendezvous/handshake.h"

namespace mccl::rendezvous {

/// Who takes a connection on, where no cable leads to the peer: what it is told first.
struct FirstHop {
  Party self;
  int rank = -1;
  transport::LinkKey key;
};

/// Until an address that refuses is taken for that of a process that has ended, where whoever is
/// named there listens for as long as it lives.
inline constexpr Clock::duration kRefusedFor = std::chrono::milliseconds(200);

struct DialRequest {
  Party self;
  int peer = -1;
  transport::LinkKey key;
  Clock::time_point deadline;
  std::vector<Candidate> candidates;
  /// How long a candidate may hang before the next one is tried beside it.
  Clock::duration stagger = std::chrono::milliseconds(250);
  std::size_t buffer_bytes = 0;
  /// The dial ends when all candidates refuse for so long; never when it is 0.
  Clock::duration refused_for{};
  /// The candidates are addresses of its, and it leads on to the peer.
  std::optional<FirstHop> through = {};
  /// Nothing is tried before.
  Clock::time_point not_before{};
};

class Dial {
 public:
  explicit Dial(DialRequest request);

  /// Does what can be done now. True once it has ended: see socket() and reason().
  bool advance(Clock::time_point now);

  /// The proven connection; empty when the dial failed.
  transport::tcp::Socket take_socket() { return std::move(socket_); }
  const std::string& reason() const { return reason_; }
  /// The candidate that won; says when the first choice failed.
  const Candidate& winner() const { return request_.candidates[winner_]; }
  const Candidate& first_choice() const { return request_.candidates.front(); }

  int peer() const { return request_.peer; }
  const transport::LinkKey& key() const { return request_.key; }
  /// Why the system could not connect the last time, as an errno, and when that attempt had begun:
  /// what it met may have changed since. 0 before.
  int last_error() const { return last_error_; }
  Clock::time_point last_tried() const { return last_tried_; }

  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

 private:
  struct Attempt {
    std::size_t candidate = 0;
    Clock::time_point begun;
    Clock::time_point deadline;         ///< Of the attempt to connect; then the dial's.
    transport::tcp::Socket connecting;  ///< Until the connection stands, then:
    std::optional<Conversation> conversation;
    bool with_first_hop = false;  ///< And not yet with the peer.
  };
  enum class Progress { waiting, failed, done, refused };

  void start_attempts(Clock::time_point now);
  void begin_round(Clock::time_point now);
  bool under_way(std::size_t candidate) const;
  void start(std::size_t candidate, Clock::time_point now);
  Progress advance(Attempt& attempt, Clock::time_point now);
  Progress finish_connecting(Attempt& attempt);
  Progress talk_to_peer(Attempt& attempt);
  bool has_waited_for_files(Clock::time_point now) const;
  void could_not_connect(int error, Clock::time_point begun);
  void keep_only(const Attempt& attempt);
  void fail(Clock::time_point now);
  std::string advice() const;
  std::string& outcome_of(const Attempt& attempt);

  DialRequest request_;
  Clock::time_point begun_;
  std::list<Attempt> attempts_;
  std::size_t next_candidate_ = 0;
  Clock::time_point next_start_;
  Clock::duration back_off_;
  bool all_refused_ = true;  ///< In this round.
  int last_error_ = 0;
  Clock::time_point last_tried_{};
  std::optional<Clock::time_point> refused_since_;
  int lacks_files_ = 0;  ///< Why no attempt can begin, as an errno; 0 when one could.
  Clock::time_point lacks_files_since_;
  /// One attempt has reached the peer, and the others were given up: nothing may start beside it,
  /// or the peer could accept two.
  bool proven_ = false;
  std::size_t winner_ = 0;
  transport::tcp::Socket socket_;
  std::string reason_;
};

}  // namespace mccl::rendezvous
