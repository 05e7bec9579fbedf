// Recursive doubling performs log2(size) exchanges, each with the rank whose number differs in one
// bit. Dissemination is a barrier in log2(size) rounds, rounded up.
#include <algorithm>
#include <bit>
#include <optional>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// Handles group sizes that are not a power of two. `extra_` is the number of ranks above the
/// largest power of two. Among the first 2 * `extra_` ranks, each even rank sends its data to the
/// odd rank above it, takes no part in the exchanges, and then receives the result.
class Doubling {
 public:
  explicit Doubling(const Problem& p)
      : p_(p),
        rounds_(std::bit_width(static_cast<unsigned>(p.size)) - 1),
        extra_(p.size - (1 << rounds_)) {}

  int rounds() const { return rounds_; }
  bool paired() const { return p_.rank < 2 * extra_; }
  bool sits_out() const { return paired() && p_.rank % 2 == 0; }
  int partner(int round) const {
    const int place = (paired() ? p_.rank / 2 : p_.rank - extra_) ^ (1 << round);
    return place < extra_ ? 2 * place + 1 : place + extra_;
  }

 private:
  const Problem& p_;
  int rounds_;
  int extra_;
};

/// Reduces one piece. Sums alternate between scratch and output, because data that is being sent
/// must not be overwritten. The last sum is in output.
void reduce_piece(ScheduleBuilder& builder, const Problem& p, const Doubling& doubling, Region own,
                  const Region& result, const Region& spare) {
  if (doubling.sits_out()) {
    builder.send(p.rank + 1, own);
    builder.recv(p.rank + 1, result);
    return;
  }
  const int rounds = doubling.rounds();
  const auto sum_before = [&](int round) { return (rounds - round) % 2 == 0 ? result : spare; };
  if (doubling.paired()) {
    builder.recv_reduce(p.rank - 1, own, sum_before(0));
    own = sum_before(0);
  } else if (p.in_place && rounds % 2 == 1) {
    builder.copy(own, spare);
    own = spare;
  }
  for (int round = 0; round < rounds; ++round) {
    const int partner = doubling.partner(round);
    const Region sum = sum_before(round + 1);
    builder.send(partner, own);
    builder.recv_reduce(partner, own, sum, round == rounds - 1);
    own = sum;
  }
  if (doubling.paired()) builder.send(p.rank - 1, result);
}

Schedule all_reduce(const Problem& p) {
  ScheduleBuilder builder(p);
  const Doubling doubling(p);
  const Extent all{0, p.count};
  const std::size_t pieces = builder.pieces(p.count);
  const std::size_t slots = doubling.sits_out() ? 0 : std::min(kSlots, pieces);
  const Extent spare = builder.reserve_scratch(slots * builder.chunk());
  for (std::size_t c = 0; c < pieces; ++c) {
    const Region own = builder.piece(input(all), c);
    const std::size_t slot = slots == 0 ? 0 : c % slots;
    reduce_piece(builder, p, doubling, own, builder.piece(output(all), c),
                 scratch({spare.offset + slot * builder.chunk(), own.count}));
  }
  return builder.finish();
}

/// Requires that the number of ranks is a power of two. After round k, a rank holds the parts of
/// its aligned group of 2^(k + 1) ranks.
Schedule all_gather(const Problem& p) {
  ScheduleBuilder builder(p);
  const Parts parts(p.counts);
  const Region own = input({0, p.counts[p.rank]});
  for (int width = 1; width < p.size; width *= 2) {
    const int first = p.rank & ~(width - 1);
    const int partner = p.rank ^ width;
    const Region mine = width == 1 ? own : output(parts.range(first, first + width));
    const Region theirs = output(parts.range(first ^ width, (first ^ width) + width));
    for (std::size_t c = 0; c < builder.pieces(std::max(mine.count, theirs.count)); ++c) {
      builder.send(partner, builder.piece(mine, c));
      builder.recv(partner, builder.piece(theirs, c));
    }
    if (width == 1) builder.copy_pieces(own, output(parts[p.rank]));
  }
  return builder.finish();
}

bool has_no_extra(const Problem& p) { return std::has_single_bit(static_cast<unsigned>(p.size)); }

bool can_recursive_doubling(const Problem& p) {
  return p.collective == Collective::all_reduce ||
         (p.collective == Collective::all_gather && has_no_extra(p));
}

Schedule build_recursive_doubling(const Problem& p) {
  return p.collective == Collective::all_gather ? all_gather(p) : all_reduce(p);
}

/// In round k of dissemination, a rank sends to the rank 2^k above it. The message means that the
/// sender, and every rank that it has heard from, has arrived.
bool can_dissemination(const Problem& p) { return p.collective == Collective::barrier; }

Schedule build_dissemination(const Problem& p) {
  ScheduleBuilder builder(p);
  const Region nothing = output({});
  std::optional<std::uint32_t> heard;  // the last receive, which ends after all receives before it
  for (int distance = 1; distance < p.size; distance *= 2) {
    const std::uint32_t sent = builder.send((p.rank + distance) % p.size, nothing);
    const std::uint32_t hears = builder.recv(wrap(p.rank - distance, p.size), nothing);
    if (heard) {
      builder.after(*heard, sent);
      builder.after(*heard, hears);
    }
    heard = hears;
  }
  return builder.finish();
}

}  // namespace

const AlgorithmEntry kRecursiveDoubling{.name = "recursive_doubling",
                                        .can = can_recursive_doubling,
                                        .build = build_recursive_doubling,
                                        .is_symmetric = has_no_extra};

const AlgorithmEntry kDissemination{.name = "dissemination",
                                    .can = can_dissemination,
                                    .build = build_dissemination,
                                    .is_symmetric = always};

}  // namespace mccl::schedule
