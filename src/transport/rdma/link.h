// A Link over a queue pair: what is written is copied into slots that the device sends, or, where
// it is much and the device allows it, read by the device where it lies; what arrives is handed out
// where the device has put it.
//
// It has no descriptor: a side that waits is woken by its station's channel.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/link.h"
#include "transport/rdma/loans.h"
#include "transport/rdma/pair.h"
#include "transport/rdma/station.h"

namespace mccl::transport::rdma {

class RdmaLink final : public Link {
 public:
  /// Takes a pair that is connected. `path` is for messages: "RoCE v2 10.9.0.1 -> 10.9.0.2".
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

  /// What has become of the bytes of this end, for tests and figures.
  struct Moved {
    std::uint64_t sent_by_copy = 0;
    std::uint64_t sent_in_place = 0;
    std::uint64_t read_by_copy = 0;    ///< By read(), to where it wants them.
    std::uint64_t taken_in_place = 0;  ///< From peek() of one slot.
    std::uint64_t joined = 0;          ///< Copied so that peek() had them in one piece.
  };
  const Moved& moved() const { return moved_; }

 private:
  /// What peek can put together of two messages; what lies in one is handed out in one piece.
  static constexpr std::size_t kPeekBytes = 8 << 10;

  std::size_t here() const { return seam_end_ - seam_begin_ + pair_->arrived(); }
  void drop(std::size_t n);
  void join_ends(std::size_t at_least);
  /// Begins or goes on with a loan of what is written; false where it is to be copied.
  bool borrow(std::span<const std::byte> bytes);
  /// The loan ends once the device has read all of it.
  void settle_loan() const;
  /// Throws when no more can come, or be sent.
  void fail_if_over() const;
  [[noreturn]] void fail(const std::string& what) const;

  const std::shared_ptr<Station> station_;
  /// Goes after the pair, which reads of it; and when somebody asks whether it is over.
  mutable std::unique_ptr<Loan> loan_;
  PairAtStation pair_;
  const std::string path_;
  /// The end of one message and the beginning of the next, where somebody wants them in one piece:
  /// they go before what the pair has.
  std::array<std::byte, kPeekBytes> seam_{};
  std::size_t seam_begin_ = 0;
  std::size_t seam_end_ = 0;
  Clock::time_point lost_at_ = Clock::time_point::max();  ///< When the peer's loss counts.
  Moved moved_;
};

}  // namespace mccl::transport::rdma
