// Performs size - 1 exchanges. In exchange d, rank r sends to rank r + d and receives from rank r -
// d, both modulo size. Reductions need no scratch: each operand is added to the rank's own part as
// it arrives.
#include <algorithm>
#include <vector>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

class Pairwise : public ScheduleWriter {
 public:
  explicit Pairwise(const Problem& p)
      : ScheduleWriter(p), phase_count_(kPiecesPerPhase * builder_.chunk()) {}

  void all_reduce() {
    const std::size_t chunk = builder_.chunk();
    const std::size_t segments = divide_up(p_.count, phase_count_ * p_.size);
    for (std::size_t s = 0; s < segments; ++s) {
      const Extent segment = divided(chunk, {0, p_.count}, segments, s);
      const auto part = [&](int rank) { return divided(chunk, segment, p_.size, rank); };
      const Extent own = part(p_.rank);
      for (int d = 1; d < p_.size; ++d) reduce(d, input(part(up(d))), input(own), output(own));
      for (int d = 1; d < p_.size; ++d) move(d, output(own), output(part(down(d))));
    }
  }

  void reduce_scatter() {
    const Parts parts(p_.counts);
    const Extent own = parts[p_.rank];
    for (std::size_t s = 0; s < divide_up(parts.largest(), phase_count_); ++s) {
      const auto segment = [&](Extent part) { return nth(part, s, phase_count_); };
      for (int d = 1; d < p_.size; ++d) {
        reduce(d, input(segment(parts[up(d)])), input(segment(own)),
               output(segment({0, own.count})));
      }
    }
  }

  /// Exchange d starts to send once exchange d - 2 has been received, so that no rank receives from
  /// many senders at the same time.
  void all_to_all() {
    const Parts sent(p_.counts);
    const Parts received(p_.recv_counts);
    std::vector<std::uint32_t> arrived(p_.size);
    for (int d = 1; d < p_.size; ++d) {
      const Region out = input(sent[up(d)]);
      const Region in = output(received[down(d)]);
      const std::size_t sends = at_least_one(out.count);
      const std::size_t receives = at_least_one(in.count);
      for (std::size_t c = 0; c < std::max(sends, receives); ++c) {
        if (c < sends) {
          const std::uint32_t step = builder_.send(up(d), builder_.piece(out, c));
          if (d > 2) builder_.after(arrived[d - 2], step);
        }
        if (c < receives) arrived[d] = builder_.recv(down(d), builder_.piece(in, c));
      }
    }
    builder_.copy_pieces(input(sent[p_.rank]), output(received[p_.rank]));
  }

 private:
  std::size_t at_least_one(std::size_t count) const {
    return std::max(std::size_t{1}, builder_.pieces(count));
  }

  /// Appends exchange d of a reduction. Only the first exchange reads the rank's own operand.
  void reduce(int d, const Region& sent, const Region& own, const Region& sum) {
    const Region& local = d == 1 ? own : sum;
    for (std::size_t c = 0; c < builder_.pieces(std::max(sent.count, sum.count)); ++c) {
      builder_.send(up(d), builder_.piece(sent, c));
      builder_.recv_reduce(down(d), builder_.piece(local, c), builder_.piece(sum, c),
                           d == p_.size - 1);
    }
  }

  void move(int d, const Region& sent, const Region& received) {
    for (std::size_t c = 0; c < builder_.pieces(std::max(sent.count, received.count)); ++c) {
      builder_.send(up(d), builder_.piece(sent, c));
      builder_.recv(down(d), builder_.piece(received, c));
    }
  }

  const std::size_t phase_count_;  // elements of a part that one segment covers
};

constexpr Writes<Pairwise> kPairwiseWrites[] = {
    {Collective::all_reduce, &Pairwise::all_reduce},
    {Collective::reduce_scatter, &Pairwise::reduce_scatter},
    {Collective::all_to_all, &Pairwise::all_to_all},
};

}  // namespace

const AlgorithmEntry kPairwise{.name = "pairwise",
                               .can = can_write<kPairwiseWrites>,
                               .build = write<kPairwiseWrites>,
                               .is_symmetric = always,
                               .in_parts = true};

}  // namespace mccl::schedule
