// What two processes tell each other beside the data: what links to make and how, that a group
// failed, what a stuck rank is waiting in, that a process lives or leaves.
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
  open,       ///< "this link is needed here": key; from the lower rank also "make it"
  link,       ///< what one end of a link to be tells the other: key, transport, blob
  declined,   ///< "this end cannot have it": key, failure.reason; through `transport`, or at all
  closed,     ///< answer to whatever concerns a group that this rank has destroyed: key.group
  window,     ///< this rank's offer for the group's window: key.group, blob
  abort,      ///< the group failed: key.group, failure, and the call and the rank that met it
  probe,      ///< "I am stuck in this call": key.group, call
  status,     ///< answer to a probe: the last call started here (sequence 0 when none)
  goodbye,    ///< the process leaves in good order; or, with a failure.reason, without the peer
  heartbeat,  ///< this process runs
  arrived,    ///< to rank 0: "I need the store no more in which you told me what all agreed on"
  /// "I have destroyed this group": key.group, the last collective that was started here
  /// (call.sequence), and why (failure.reason). Messages are on their way where key.purpose says
  /// so.
  ending,
  /// "My messages wait for room in the link to you": key.group, the number of the last one
  /// (call.sequence).
  blocked,
};
inline constexpr int kControlKindCount = 13;

struct ControlMessage {
  ControlKind kind = ControlKind::goodbye;
  transport::LinkKey key;
  std::string transport;  ///< Its name.
  Call call;
  Failure failure;
  transport::Blob blob;

  /// What it takes in memory, by and large.
  std::size_t bytes() const { return sizeof *this + failure.reason.size() + blob.size(); }
};

/// A length-prefixed message. Reasons longer than 2 KiB are cut. Throws InvalidArgument for a blob
/// that is too long.
std::vector<std::byte> encode(const ControlMessage& message);

/// The first message in `bytes`, and how many bytes it took; nothing when it is not complete.
/// Throws CorruptionError for bytes that cannot be one.
struct DecodedControl {
  ControlMessage message;
  std::size_t bytes = 0;
};
std::optional<DecodedControl> decode_control(std::span<const std::byte> bytes);

/// One end of a pair's control connection. Used under the engine's progress lock.
class ControlConnection {
 public:
  /// Most that waits for a peer which does not read: what an honest one is told of a hundred
  /// thousand groups while it is stopped.
  static constexpr std::size_t kMostUnsentBytes = std::size_t{32} << 20;

  /// Throws std::bad_alloc. Afterwards a message needs memory only while earlier ones wait.
  explicit ControlConnection(std::unique_ptr<transport::Link> link);

  /// Writes the message as far as the link takes it, and keeps the rest. Returns why the peer
  /// cannot be told: more than kMostUnsentBytes wait, or memory has run out; empty when all is
  /// well. After that the stream has a gap and the connection is of no further use. Of a connection
  /// that has closed, receive() throws.
  [[nodiscard]] std::string_view send(const ControlMessage& message) noexcept;
  /// Writes what waits to be written.
  void flush() noexcept;
  bool has_unsent() const { return sent_ < unsent_.size(); }
  /// The next message that has arrived; the same until consume(). Throws LinkClosed at the end of
  /// the stream, and CorruptionError.
  std::optional<ControlMessage> receive();
  void consume() { link_->consume(std::exchange(received_bytes_, 0)); }
  const transport::Link& link() const { return *link_; }

 private:
  void shrink() noexcept;

  std::unique_ptr<transport::Link> link_;
  std::vector<std::byte> unsent_;  // from sent_ on
  std::size_t sent_ = 0;
  std::size_t received_bytes_ = 0;  // of the message that receive() has returned
};

}  // namespace mccl::engine
