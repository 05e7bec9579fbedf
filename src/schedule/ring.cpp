// Each rank sends to one neighbour and receives from the other, in rank order or in the order of
// the cables. Parts travel around the ring twice: first to be reduced, then to be distributed. In
// the algorithm ring_both, half of each part travels in each direction.
#include <algorithm>
#include <array>
#include <span>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

/// One direction around the ring. In phase k a rank sends the part that it received in phase k - 1.
/// When reducing, phase 0 sends the part of the previous rank, and the last phase completes the
/// rank's own part. When gathering, phase 0 sends the rank's own part.
class RingDirection {
 public:
  /// Follows Problem::ring if it is set. `direction` is 1 or -1. The problem must outlive this
  /// object.
  RingDirection(const Problem& p, int direction)
      : order_(p.ring), size_(p.size), direction_(direction), place_(p.rank) {
    if (!order_.empty())
      place_ = static_cast<int>(std::ranges::find(order_, p.rank) - order_.begin());
  }

  int to() const { return behind(-1); }
  int from() const { return behind(1); }
  int sent_reducing(int phase) const { return behind(phase + 1); }
  int received_reducing(int phase) const { return behind((phase + 2) % size_); }
  int sent_gathering(int phase) const { return behind(phase); }
  int received_gathering(int phase) const { return behind(phase + 1); }

 private:
  /// The rank that is `places` places behind this rank in this direction.
  int behind(int places) const {
    const int place = wrap(place_ - direction_ * places, size_);
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }

  std::span<const int> order_;
  int size_;
  int direction_;
  int place_;
};

/// The work of one phase in one direction, for one segment.
struct Hop {
  Region sent;
  bool reduces = false;
  bool completes = false;
  Region local = {};  // This rank's operand, which is reduced with the received data.
  Region received = {};
};

template <std::size_t lanes>
class Ring : public ScheduleWriter {
 public:
  explicit Ring(const Problem& p)
      : ScheduleWriter(p),
        ways_{RingDirection(p, 1), RingDirection(p, -1)},
        phase_count_(kPiecesPerPhase * builder_.chunk()) {}

  void all_reduce() {
    const std::size_t segments = divide_up(p_.count, phase_count_ * p_.size * lanes);
    for (std::size_t s = 0; s < segments; ++s) {
      const Extent segment = divided(builder_.chunk(), {0, p_.count}, segments, s);
      const auto part = [&](std::size_t lane, int rank) {
        return divided(builder_.chunk(), divided(builder_.chunk(), segment, lanes, lane), p_.size,
                       rank);
      };
      for (int k = 0; k < p_.size - 1; ++k) {
        hop([&](std::size_t lane) {
          const Extent sent = part(lane, ways_[lane].sent_reducing(k));
          const Extent received = part(lane, ways_[lane].received_reducing(k));
          return Hop{.sent = k == 0 ? input(sent) : output(sent),
                     .reduces = true,
                     .completes = k == p_.size - 2,
                     .local = input(received),
                     .received = output(received)};
        });
      }
      for (int k = 0; k < p_.size - 1; ++k) {
        hop([&](std::size_t lane) {
          return Hop{.sent = output(part(lane, ways_[lane].sent_gathering(k))),
                     .received = output(part(lane, ways_[lane].received_gathering(k)))};
        });
      }
    }
  }

  /// Partial sums are kept in scratch, because input must not be written.
  void reduce_scatter() {
    const Parts parts(p_.counts);
    const std::size_t segments = segments_of(parts);
    const std::size_t length = std::min(phase_count_, parts.largest());
    const Extent sums = builder_.reserve_scratch(p_.size > 2 ? lanes * kRooms * length : 0);
    std::size_t turn = 0;
    for (std::size_t s = 0; s < segments; ++s) {
      const auto part = [&](std::size_t lane, int rank) { return share(parts[rank], lane, s); };
      for (int k = 0; k < p_.size - 1; ++k, ++turn) {
        const bool last = k == p_.size - 2;
        hop([&](std::size_t lane) {
          const auto room = [&](std::size_t index, std::size_t count) {
            const std::size_t at = lane * kRooms + index % kRooms;
            return scratch({sums.offset + at * length, count});
          };
          const Extent sent = part(lane, ways_[lane].sent_reducing(k));
          const Extent received = part(lane, ways_[lane].received_reducing(k));
          const Extent result{received.offset - parts[p_.rank].offset, received.count};
          return Hop{.sent = k == 0 ? input(sent) : room(turn + kRooms - 1, sent.count),
                     .reduces = true,
                     .completes = last,
                     .local = input(received),
                     .received = last ? output(result) : room(turn, received.count)};
        });
      }
    }
  }

  void all_gather() {
    const Parts parts(p_.counts);
    const std::size_t segments = segments_of(parts);
    const std::size_t begin = parts[p_.rank].offset;
    for (std::size_t s = 0; s < segments; ++s) {
      const auto part = [&](std::size_t lane, int rank) { return share(parts[rank], lane, s); };
      const auto own = [&](std::size_t lane) {
        const Extent extent = part(lane, p_.rank);
        return input({extent.offset - begin, extent.count});
      };
      for (int k = 0; k < p_.size - 1; ++k) {
        hop([&](std::size_t lane) {
          return Hop{.sent = k == 0 ? own(lane) : output(part(lane, ways_[lane].sent_gathering(k))),
                     .received = output(part(lane, ways_[lane].received_gathering(k)))};
        });
      }
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        builder_.copy_pieces(own(lane), output(part(lane, p_.rank)));
      }
    }
  }

 private:
  /// Number of buffers for sums: the sums of one phase are sent while the sums of the next phase
  /// arrive.
  static constexpr std::size_t kRooms = 2;

  std::size_t segments_of(const Parts& parts) const {
    return divide_up(divided(builder_.chunk(), {0, parts.largest()}, lanes, 0).count, phase_count_);
  }

  /// The share of a rank's part that travels in direction `lane` in segment s.
  Extent share(Extent part, std::size_t lane, std::size_t s) const {
    return nth(divided(builder_.chunk(), part, lanes, lane), s, phase_count_);
  }

  /// Appends all pieces of a phase, alternating between the directions.
  template <typename Describe>
  void hop(const Describe& describe) {
    const Hop first = describe(0);
    const Hop second = lanes == 2 ? describe(1) : Hop{};
    const std::size_t pieces = builder_.pieces(std::max(
        {first.sent.count, first.received.count, second.sent.count, second.received.count}));
    for (std::size_t c = 0; c < pieces; ++c) {
      move(ways_[0], first, c);
      move(ways_[1], second, c);
    }
  }

  void move(const RingDirection& way, const Hop& hop, std::size_t c) {
    builder_.send(way.to(), builder_.piece(hop.sent, c));
    const Region received = builder_.piece(hop.received, c);
    if (hop.reduces) {
      builder_.recv_reduce(way.from(), builder_.piece(hop.local, c), received, hop.completes);
    } else {
      builder_.recv(way.from(), received);
    }
  }

  const std::array<RingDirection, 2> ways_;
  const std::size_t phase_count_;  // elements of a part that one phase of a segment moves
};

template <std::size_t lanes>
constexpr Writes<Ring<lanes>> kRingWrites[] = {
    {Collective::all_reduce, &Ring<lanes>::all_reduce},
    {Collective::reduce_scatter, &Ring<lanes>::reduce_scatter},
    {Collective::all_gather, &Ring<lanes>::all_gather},
};

/// With two ranks, both directions are the same.
bool can_ring_both(const Problem& p) { return p.size > 2 && can_write<kRingWrites<2>>(p); }

}  // namespace

const AlgorithmEntry kRing{.name = "ring",
                           .can = can_write<kRingWrites<1>>,
                           .build = write<kRingWrites<1>>,
                           .is_symmetric = always,
                           .in_parts = true};
const AlgorithmEntry kRingBoth{.name = "ring_both",
                               .can = can_ring_both,
                               .build = write<kRingWrites<2>>,
                               .is_symmetric = always,
                               .in_parts = true};

}  // namespace mccl::schedule
