// What two processes tell each other beside the data: which links to open, that a group failed,
// what a stuck rank is waiting in, that a process leaves.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/call.h"
#include "engine/failure.h"
#include "engine/group_window.h"
#include "rendezvous/mesh.h"
#include "transport/link.h"

namespace mccl::engine {

enum class ControlKind : std::uint8_t {
  open,       ///< "this link is needed here": key; from the lower rank also "make it"
  abort,      ///< the group failed: key.group, failure
  probe,      ///< "I am stuck in this call": key.group, call
  status,     ///< answer to a probe: the last call started here (sequence 0 when none)
  goodbye,    ///< the process leaves in good order; or, with a failure.reason, without the peer
  share,      ///< "your end of the link is in my memory": key, offer.place
  joined,     ///< answer to a share: this end stands: key
  declined,   ///< answer to a share: this end cannot be had: key, failure.reason
  window,     ///< this rank's offer for the group's window: key.group, offer
  closed,     ///< answer to whatever concerns a group that this rank has destroyed: key.group
  heartbeat,  ///< this process runs
};
inline constexpr int kControlKindCount = 11;

struct ControlMessage {
  ControlKind kind = ControlKind::goodbye;
  rendezvous::LinkKey key;
  Call call;
  Failure failure;
  WindowOffer offer;
};

/// A length-prefixed message. Reasons longer than 2 KiB are cut.
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
  explicit ControlConnection(std::unique_ptr<transport::Link> link) : link_(std::move(link)) {}

  void send(const ControlMessage& message);
  /// Writes what waits to be written. False once the connection has closed.
  bool flush();
  bool has_unsent() const { return !unsent_.empty(); }
  /// The next message that has arrived. Throws LinkClosed at the end of the stream.
  std::optional<ControlMessage> receive();
  int descriptor() const { return link_->descriptor(); }

 private:
  std::unique_ptr<transport::Link> link_;
  std::deque<std::byte> unsent_;
};

}  // namespace mccl::engine
