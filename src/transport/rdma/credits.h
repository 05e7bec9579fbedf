// Who may send how much, so that nothing ever arrives where no receive is posted.
//
// A receiver posts a number of receives ("depth") before the two ends are connected, and posts one
// again for each message that it has done with. It tells in every message how many it has posted
// again in all ("returned"); where nothing else goes its way, in a message of its own (credit).
// What is sent and not yet returned is at most the depth. The last of it is kept for messages that
// carry no data, since an end that could not say what it has returned would wait for the other for
// ever: see owes_credit().
#pragma once

#include <cstdint>

namespace mccl::transport::rdma {

class Credits {
 public:
  /// Of the depth, what data may not use.
  static constexpr std::uint32_t kReserved = 5;
  /// So many that have been returned are worth a message. Not more than what is reserved less one:
  /// then each credit message makes room for the ones that go the other way, and no two ends can
  /// both be out of it. Above one, so that credit messages do not answer each other for ever.
  static constexpr std::uint32_t kWorthTelling = kReserved - 1;
  static constexpr std::uint32_t kLeastDepth = 2 * kReserved;

  /// `depth` is the peer's.
  explicit Credits(std::uint32_t depth) : depth_(depth) {}

  /// Messages that the peer has a receive for.
  std::uint32_t left() const { return depth_ - (sent_ - heard_); }
  bool may_send_data() const { return left() > kReserved; }
  /// Credit and answers may use the reserved, but for the one that is kept for close, and probes
  /// leave one more: what an end must say to be given credit itself is never held up by what it
  /// asks. A credit message or an answer returns something each time, so no two ends are ever both
  /// out of credit.
  bool may_send_probe() const { return left() > 2; }
  bool may_send_credit() const { return left() > 1; }
  bool may_close() const { return left() > 0; }

  /// The number of the message that is sent now.
  std::uint32_t send() {
    told_ = returned_;
    return sent_++;
  }
  /// Messages that are sent, and of which the peer has not said that it has done with them.
  std::uint32_t outstanding() const { return sent_ - heard_; }

  void return_one() { ++returned_; }
  /// Messages that were lost on the way have used no receive.
  void skip(std::uint32_t lost) { returned_ += lost; }
  std::uint32_t returned() const { return returned_; }
  bool owes_credit() const { return returned_ - told_ >= kWorthTelling; }

  /// What the peer says that it has returned. False when that cannot be.
  bool hear(std::uint32_t returned) {
    if (returned - heard_ > sent_ - heard_) return false;
    heard_ = returned;
    return true;
  }

 private:
  std::uint32_t depth_;
  std::uint32_t sent_ = 0;
  std::uint32_t heard_ = 0;  ///< Of what was sent, returned by the peer.
  std::uint32_t returned_ = 0;
  std::uint32_t told_ = 0;  ///< Of what was returned.
};

}  // namespace mccl::transport::rdma
