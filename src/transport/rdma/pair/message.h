// The header of every message between two queue pairs, its validation, the slots that hold
// messages, and flow control. Both ends are little-endian.
//
// Flow control ensures that no message ever arrives without a posted receive. A receiver posts a
// number of receives ("depth") before the two ends are connected. It posts a receive again after it
// has processed the message. Every message carries the total number of receives that its sender has
// posted again ("returned"). A credit message carries only that count; it is sent when no other
// message is due.
//
// A message is outstanding until the other end reports the message's receive as posted again. An
// end may have at most "depth" messages outstanding, and messages with data must leave kReserved of
// the peer's receives free for messages without data. Otherwise both ends could run out of credit
// and be unable to report the receives that they have posted again; see owes_credit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mccl::transport::rdma {

class Credits {
 public:
  /// Number of the peer's receives that messages with data must leave free.
  static constexpr std::uint32_t kReserved = 5;
  /// Number of receives that an end posts again before it sends a credit message. It is less than
  /// kReserved, so each credit message frees receives for credit messages of the other direction,
  /// and the two ends cannot both run out of credit. It is more than 1, so that credit messages do
  /// not answer each other forever.
  static constexpr std::uint32_t kWorthTelling = kReserved - 1;
  static constexpr std::uint32_t kLeastDepth = 2 * kReserved;

  /// `depth` is the number of receives that the peer has posted.
  explicit Credits(std::uint32_t depth) : depth_(depth) {}

  /// Number of messages that this end may still send before the peer reports more receives as
  /// posted again.
  std::uint32_t left() const { return depth_ - (sent_ - heard_); }
  bool may_send_data() const { return left() > kReserved; }
  /// Credit messages and answers may use all but one of the reserved receives; the last is kept for
  /// close. Probes must leave one more receive free, so that the probes of an end never block its
  /// credit messages. Each credit message or answer returns at least one receive, so the two ends
  /// are never both out of credit.
  bool may_send_probe() const { return left() > 2; }
  bool may_send_credit() const { return left() > 1; }
  bool may_close() const { return left() > 0; }

  /// Accounts for a sent message; returns its sequence number.
  std::uint32_t send() {
    announced_ = returned_;
    return sent_++;
  }
  /// Number of messages sent that the peer has not yet reported as processed.
  std::uint32_t outstanding() const { return sent_ - heard_; }

  void return_one() { ++returned_; }
  /// Accounts for `lost` messages that were lost in transit. They used no receive of this end, so
  /// the peer gets back the credit that it spent on them.
  void skip(std::uint32_t lost) { returned_ += lost; }
  std::uint32_t returned() const { return returned_; }
  bool owes_credit() const { return returned_ - announced_ >= kWorthTelling; }

  /// Records the count of receives that the peer has posted again. Returns false if the count
  /// exceeds the number of sent messages, or is lower than an earlier count.
  bool hear(std::uint32_t returned) {
    if (returned - heard_ > sent_ - heard_) return false;
    heard_ = returned;
    return true;
  }

 private:
  std::uint32_t depth_;
  std::uint32_t sent_ = 0;
  std::uint32_t heard_ = 0;  ///< MessageHeader::returned of the peer's last message.
  std::uint32_t returned_ = 0;
  std::uint32_t announced_ = 0;  ///< Value of returned_ that was last sent to the peer.
};

enum class MessageKind : std::uint16_t {
  hello,  ///< First message of each end; tests the path.
  ready,  ///< Sent by the dialing end once it has received a hello.
  data,
  credit,  ///< Carries only the count of receives posted again.
  probe,   ///< Asks whether all earlier messages have arrived; used on uc.
  close,   ///< No more messages follow.
  answer,  ///< Answers a probe: all earlier messages have arrived.
};
inline constexpr int kMessageKinds = 7;

struct MessageHeader {
  /// Secret token that the receiver gave to its peer. It proves that the peer sent the message.
  std::uint64_t token = 0;
  std::uint32_t sequence = 0;  ///< Index among the messages of one direction.
  std::uint32_t bytes = 0;     ///< Number of payload bytes after the header.
  std::uint32_t returned = 0;  ///< Total number of receives that the sender has posted again.
  std::uint16_t kind = 0;
  std::uint16_t question = 0;  ///< Number of the probe that is sent or answered; else 0.
};
inline constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
static_assert(kHeaderBytes == 24);

void encode(const MessageHeader& header, std::span<std::byte> into);

/// Result of decode(). `fault` says what is wrong with the message; empty if the message is valid.
struct Decoded {
  MessageHeader header;
  std::string fault;
};
Decoded decode(std::span<const std::byte> message, std::uint64_t token, std::size_t most);

/// Size in bytes of a slot, which holds one message with its header. The size is large enough that
/// the cost per message is negligible, small enough for the cache, and a multiple of the page size.
inline constexpr std::uint32_t kSlotBytes = 32 << 10;
inline constexpr std::uint32_t kReceiveSlots = 16;
inline constexpr std::uint32_t kSendSlots = 8;
/// Number of send slots that data messages must leave free, so that messages that return credit
/// need not wait for a slot.
inline constexpr std::uint32_t kSendReserved = 2;
inline constexpr std::size_t kBerthBytes = std::size_t{kSlotBytes} * (kReceiveSlots + kSendSlots);

static_assert(kReceiveSlots >= Credits::kLeastDepth);

/// The receive slots of one end. Each end describes its slots to the other end, so that builds with
/// different sizes can connect.
struct SlotShape {
  std::uint32_t depth = kReceiveSlots;
  std::uint32_t slot_bytes = kSlotBytes;
};
/// Bounds for the SlotShape that a peer may send.
inline constexpr std::uint32_t kMostDepth = 1 << 16;
inline constexpr std::uint32_t kLeastSlotBytes = 4 << 10;
inline constexpr std::uint32_t kMostSlotBytes = 64 << 20;

inline bool is_possible(const SlotShape& shape) {
  return shape.depth >= Credits::kLeastDepth && shape.depth <= kMostDepth &&
         shape.slot_bytes >= kLeastSlotBytes && shape.slot_bytes <= kMostSlotBytes;
}

}  // namespace mccl::transport::rdma
