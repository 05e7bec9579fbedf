// Control messages between two processes, such as requests for links, failures of groups,
// descriptions of calls that make no progress, heartbeats and goodbyes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/calls/call.h"
#include "engine/calls/failure.h"
#include "transport/link.h"
#include "transport/transport.h"

namespace mccl::engine {

/// "This rank" is the sender. The text after each colon lists the fields of ControlMessage that the
/// kind uses.
enum class ControlKind : std::uint8_t {
  open,  ///< asks for a link, which the higher rank of the pair makes: key
  link,  ///< set-up data of a transport for a link that is being made: key, transport, blob
  /// this rank cannot set up the link with this transport (empty: with any): key, failure.reason,
  /// transport
  declined,
  closed,  ///< answer to a message about a group that this rank has destroyed: key.group
  window,  ///< this rank's offer for the group's window: key.group, blob
  abort,   ///< the group failed: key.group, failure, call (in which the failure was detected)
  /// asks the peer to compare this rank's call with its own, and to report its last call:
  /// key.group, call, and, in a group with a carrier, a digest of this rank's calls (blob). Sent if
  /// this rank's call makes no progress and, in a group with a carrier, also at intervals.
  probe,
  /// answer to a probe: key.group, this rank's last collective (call; call.sequence is 0 if there
  /// was none), and what it waits for (blob; see GroupState::own_wait())
  status,
  /// this process gives up the peer, or, if failure.reason is empty, leaves the job: failure.reason
  goodbye,
  heartbeat,  ///< this process is running
  arrived,    ///< to rank 0: this rank no longer needs rank 0's store
  /// this rank has destroyed the group: key.group, the number of its last collective in the group
  /// (call.sequence), and the reason (failure.reason). If key.purpose is point_to_point, messages
  /// may be in flight.
  ending,
  /// this rank's messages wait for space in the link to the peer: key.group, the number of the last
  /// message (call.sequence)
  blocked,
  /// this rank's vote on which members survive: key.group, the round (call.sequence), and a byte
  /// for each member (blob)
  survivors,
  agreed,  ///< the decision of a round of votes: the same fields as survivors
  /// asks for the peer's status report (engine/peers/reports.h): the number of the request
  /// (call.sequence)
  describe,
  /// a piece of this rank's status report (blob), and the number of the request (call.sequence)
  description,
  /// the number of bytes (call.sequence) that this rank has received over a relayed link: key
  received,
  /// the last collective of the group that this rank has enqueued on its GPU: key.group, call, and
  /// GroupState::about_enqueued() (blob)
  enqueued,
};
inline constexpr int kControlKindCount = 19;

struct ControlMessage {
  ControlKind kind = ControlKind::goodbye;
  transport::LinkKey key = {};
  std::string transport = {};
  Call call = {};
  Failure failure = {};
  transport::Blob blob = {};

  /// Approximate size in memory, in bytes.
  std::size_t bytes() const { return sizeof *this + failure.reason.size() + blob.size(); }
};

/// Returns the encoded message; its header contains the lengths of the blob and the reason. Reasons
/// longer than 2 KiB are truncated. Throws InvalidArgument if the blob is longer than
/// transport::kMostBlobBytes.
std::vector<std::byte> encode(const ControlMessage& message);

struct DecodedControl {
  ControlMessage message;
  std::size_t bytes = 0;  ///< Length of the encoded message.
};
/// Returns the first message in `bytes`; nullopt if the message is incomplete. Throws
/// CorruptionError for bytes that cannot be a message.
std::optional<DecodedControl> decode_control(std::span<const std::byte> bytes);

/// One side of a pair's control connection. Used under the engine's progress lock.
class ControlConnection {
 public:
  /// Maximum number of bytes queued for a peer that does not read; beyond this, the connection
  /// fails. A correct peer may be stopped for a while, so the limit is high: messages about a
  /// hundred thousand groups fit.
  static constexpr std::size_t kMostUnsentBytes = std::size_t{32} << 20;

  /// Reserves memory for queued bytes, so that send() allocates memory only if earlier messages are
  /// still queued. Throws std::bad_alloc if there is none.
  explicit ControlConnection(std::unique_ptr<transport::Link> link);

  /// Writes as much of the message as the link takes, and queues the rest. Returns an empty text on
  /// success, otherwise the reason of the failure: more than kMostUnsentBytes are queued, or memory
  /// has run out. After a failure the stream has a gap, and the connection must not be used any
  /// more. Does not report a closed connection; receive() then throws.
  [[nodiscard]] std::string_view send(const ControlMessage& message) noexcept;
  /// Writes as many queued bytes as the link takes.
  void flush() noexcept;
  bool has_unsent() const { return sent_ < unsent_.size(); }
  /// Returns the next message, and returns the same message again until consume() is called.
  /// Returns nullopt until the whole message has arrived. Throws LinkClosed at the end of the
  /// stream, and CorruptionError for malformed bytes.
  std::optional<ControlMessage> receive();
  void consume() { link_->consume(std::exchange(received_bytes_, 0)); }
  /// Called when the peer is about to close the connection, which must then not be replaced.
  void expect_end() { link_->lose_peer(transport::Loss::reported); }
  const transport::Link& link() const { return *link_; }

 private:
  void shrink() noexcept;

  std::unique_ptr<transport::Link> link_;
  // Queued messages, encoded; the link has taken the first sent_ bytes.
  std::vector<std::byte> unsent_;
  std::size_t sent_ = 0;
  std::size_t received_bytes_ = 0;  // bytes of the message that receive() returned last
};

}  // namespace mccl::engine
