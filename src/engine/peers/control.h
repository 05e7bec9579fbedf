// Messages that two processes exchange beside the data: which links to make and how, that a group
// failed, which call a stuck rank waits in, heartbeats and goodbyes.
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
#include "transport/link_key.h"
#include "transport/transport.h"

namespace mccl::engine {

enum class ControlKind : std::uint8_t {
  open,  ///< "this link is needed here": key; from the lower rank also "make it"
  link,  ///< transport data for the other end of a link in the making: key, transport, blob
  /// "this end cannot have it": key, failure.reason; by `transport`, or by any if that is empty
  declined,
  closed,     ///< answer to a message about a group that this rank has destroyed: key.group
  window,     ///< this rank's offer for the group's window: key.group, blob
  abort,      ///< the group failed: key.group, failure, and the call and the rank that met it
  probe,      ///< "I am stuck in this call": key.group, call
  status,     ///< answer to a probe: the last call started here (sequence 0 if none)
  goodbye,    ///< the process leaves in good order; with failure.reason: it gives the peer up
  heartbeat,  ///< this process runs
  arrived,    ///< to rank 0: this rank needs rank 0's store no more
  /// "I have destroyed this group": key.group, the last collective started here (call.sequence),
  /// and why (failure.reason). If key.purpose is point_to_point, messages may be in flight.
  ending,
  /// "My messages wait for room in the link to you": key.group, the number of the last one
  /// (call.sequence).
  blocked,
};
inline constexpr int kControlKindCount = 13;

struct ControlMessage {
  ControlKind kind = ControlKind::goodbye;
  transport::LinkKey key;
  std::string transport;  ///< Name of the transport.
  Call call;
  Failure failure;
  transport::Blob blob;

  /// Approximate size in memory.
  std::size_t bytes() const { return sizeof *this + failure.reason.size() + blob.size(); }
};

/// A length-prefixed message. Reasons longer than 2 KiB are truncated. Throws InvalidArgument if
/// the blob is too long.
std::vector<std::byte> encode(const ControlMessage& message);

/// The first message in `bytes` and its length; nothing if it is incomplete. Throws CorruptionError
/// for bytes that cannot be a message.
struct DecodedControl {
  ControlMessage message;
  std::size_t bytes = 0;
};
std::optional<DecodedControl> decode_control(std::span<const std::byte> bytes);

/// One end of a pair's control connection. Used under the engine's progress lock.
class ControlConnection {
 public:
  /// Most bytes queued for a peer that does not read. An honest peer that is stopped needs this
  /// much for messages about a hundred thousand groups.
  static constexpr std::size_t kMostUnsentBytes = std::size_t{32} << 20;

  /// Throws std::bad_alloc. Afterwards, sending needs memory only while earlier messages are
  /// queued.
  explicit ControlConnection(std::unique_ptr<transport::Link> link);

  /// Writes as much of the message as the link takes, and queues the rest. Returns empty on
  /// success, else why it failed: more than kMostUnsentBytes are queued, or memory has run out.
  /// After a failure the stream has a gap, and the connection must not be used any more. Does not
  /// report a closed connection; receive() throws then.
  [[nodiscard]] std::string_view send(const ControlMessage& message) noexcept;
  /// Writes queued bytes.
  void flush() noexcept;
  bool has_unsent() const { return sent_ < unsent_.size(); }
  /// The next message that has arrived; returns the same one until consume(). Throws LinkClosed at
  /// the end of the stream, and CorruptionError.
  std::optional<ControlMessage> receive();
  void consume() { link_->consume(std::exchange(received_bytes_, 0)); }
  const transport::Link& link() const { return *link_; }

 private:
  void shrink() noexcept;

  std::unique_ptr<transport::Link> link_;
  std::vector<std::byte> unsent_;  // queued from sent_ on
  std::size_t sent_ = 0;
  std::size_t received_bytes_ = 0;  // bytes of the message that receive() returned last
};

}  // namespace mccl::engine
