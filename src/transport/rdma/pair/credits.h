// Flow control: ensures that no message ever arrives without a posted receive.
//
// A receiver posts a number of receives ("depth") before the two ends are connected. It posts one
// again after it has processed a message. Every message carries the total number of receives that
// its sender has posted again ("returned"). If there is no other message to send, a credit message
// carries that count.
//
// The number of messages sent but not yet returned is at most the depth. The last kReserved of the
// depth are reserved for messages without data. Otherwise both ends could run out of credit without
// being able to report the receives that they have returned; see owes_credit().
#pragma once

#include <cstdint>

namespace mccl::transport::rdma {

class Credits {
 public:
  /// Number of the peer's receives that data may not use.
  static constexpr std::uint32_t kReserved = 5;
  /// Number of returned receives after which a credit message is sent. It is less than kReserved,
  /// so each credit message frees receives for those of the other direction, and the two ends
  /// cannot both run out of credit. It is more than 1, so that credit messages do not answer each
  /// other forever.
  static constexpr std::uint32_t kWorthTelling = kReserved - 1;
  static constexpr std::uint32_t kLeastDepth = 2 * kReserved;

  /// `depth` is the number of receives that the peer has posted.
  explicit Credits(std::uint32_t depth) : depth_(depth) {}

  /// Number of messages for which the peer has a posted receive.
  std::uint32_t left() const { return depth_ - (sent_ - heard_); }
  bool may_send_data() const { return left() > kReserved; }
  /// Credit messages and answers may use all but one of the reserved receives; the last is kept for
  /// close. Probes must leave one more, so that an end's own probes never block its credit
  /// messages. Each credit message or answer returns at least one receive, so the two ends are
  /// never both out of credit.
  bool may_send_probe() const { return left() > 2; }
  bool may_send_credit() const { return left() > 1; }
  bool may_close() const { return left() > 0; }

  /// Accounts for a sent message; returns its sequence number.
  std::uint32_t send() {
    told_ = returned_;
    return sent_++;
  }
  /// Messages sent that the peer has not yet reported as processed.
  std::uint32_t outstanding() const { return sent_ - heard_; }

  void return_one() { ++returned_; }
  /// Accounts for messages lost in transit, which have used no receive.
  void skip(std::uint32_t lost) { returned_ += lost; }
  std::uint32_t returned() const { return returned_; }
  bool owes_credit() const { return returned_ - told_ >= kWorthTelling; }

  /// Records the peer's count of returned receives. Returns false if the count is impossible.
  bool hear(std::uint32_t returned) {
    if (returned - heard_ > sent_ - heard_) return false;
    heard_ = returned;
    return true;
  }

 private:
  std::uint32_t depth_;
  std::uint32_t sent_ = 0;
  std::uint32_t heard_ = 0;  ///< Number of sent messages that the peer has returned.
  std::uint32_t returned_ = 0;
  std::uint32_t told_ = 0;  ///< Value of returned_ that was last sent to the peer.
};

}  // namespace mccl::transport::rdma
