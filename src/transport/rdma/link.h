// A Link over a queue pair. write() copies bytes into slots (registered message buffers) that the
// device sends. If RegionLimits::lends is true, the device can read the bytes of large writes
// directly in the caller's memory. peek() returns received bytes without a copy, in the slots that
// the device has filled.
//
// The link has no descriptor. The completion channel of its Station wakes a sleeping rank.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/rdma/device/device.h"
#include "transport/rdma/pair/pair.h"
#include "transport/rdma/station.h"

namespace mccl::transport::rdma {

class RdmaLink final : public Link {
 public:
  /// Takes over a connected pair. `path` is used in messages: "RoCE v2 10.9.0.1 -> 10.9.0.2".
  RdmaLink(std::shared_ptr<Station> station, PairAtStation pair, std::string path);
  ~RdmaLink() override;

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override;
  std::span<const std::byte> peek(std::size_t at_least) override;
  void consume(std::size_t n) override;
  std::size_t peek_capacity() const override { return kPeekBytes; }
  std::size_t read(std::span<std::byte> destination) override;
  int descriptor() const override { return -1; }
  std::size_t unsent() const override;
  std::size_t borrowed() const override;
  std::size_t buffer_bytes() const override { return kBerthBytes; }
  void lose_peer(Loss loss) override;
  std::string description() const override;

  /// Byte counts of this end, for tests and statistics.
  struct Moved {
    std::uint64_t sent_by_copy = 0;
    std::uint64_t sent_in_place = 0;
    std::uint64_t read_by_copy = 0;    ///< Copied by read() into its destination.
    std::uint64_t taken_in_place = 0;  ///< Consumed from a single slot after peek().
    std::uint64_t joined = 0;          ///< Copied so that peek() could return one span.
  };
  const Moved& moved() const { return moved_; }

 private:
  /// Maximum number of bytes that peek() copies together from several messages. The bytes of a
  /// single message are returned in place, without a copy.
  static constexpr std::size_t kPeekBytes = 8 << 10;

  std::size_t here() const { return seam_end_ - seam_begin_ + pair_->arrived(); }
  void drop(std::size_t n);
  void join_ends(std::size_t at_least);
  /// Begins or continues a Loan of `bytes`, which the device then reads in place. Returns false if
  /// the caller must copy the bytes.
  bool borrow(std::span<const std::byte> bytes);
  /// Ends the loan if the device has read all of the lent memory.
  void settle_loan() const;
  /// Throws LinkClosed or CorruptionError if no more bytes can be received or sent.
  void fail_if_over() const;
  [[noreturn]] void fail(const std::string& what) const;

  const std::shared_ptr<Station> station_;
  /// The current loan of the caller's memory, from which the device reads. Declared before pair_,
  /// so that the loan is destroyed after the pair. Mutable, because borrowed() may end the loan.
  mutable std::unique_ptr<Loan> loan_;
  PairAtStation pair_;
  const std::string path_;
  /// Bytes of consecutive messages, joined so that peek() can return them in one piece. They
  /// precede the bytes in pair_.
  std::array<std::byte, kPeekBytes> seam_{};
  std::size_t seam_begin_ = 0;
  std::size_t seam_end_ = 0;
  /// Time from which calls throw LinkClosed because the peer is lost; Clock::time_point::max() if
  /// it is not lost.
  Clock::time_point lost_at_ = Clock::time_point::max();
  Moved moved_;
};

}  // namespace mccl::transport::rdma
