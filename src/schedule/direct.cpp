// Every rank sends directly to each rank that needs its data. A rank that reduces gathers all
// operands of a piece in scratch and folds them in rank order, so that 16-bit sums are rounded only
// once.
#include <algorithm>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

class Direct {
 public:
  explicit Direct(const Problem& problem) : p_(problem), builder_(problem) {}

  Schedule all_reduce() {
    const Extent all{0, p_.count};
    const Operands operands = reserve_operands(p_.count);
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      send_to_all(builder_.piece(input(all), c));
      reduce_piece(operands, c, input(all), output(all));
    }
    return builder_.finish();
  }

  Schedule reduce() {
    const Extent all{0, p_.count};
    if (p_.rank != p_.root) return send_to_root(input(all));
    const Operands operands = reserve_operands(p_.count);
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      reduce_piece(operands, c, input(all), output(all));
    }
    return builder_.finish();
  }

  Schedule reduce_scatter() {
    const Parts parts(p_.counts);
    const Extent own = parts[p_.rank];
    const Operands operands = reserve_operands(own.count);
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(parts[up(d)]), c));
      }
      reduce_piece(operands, c, input(own), output({0, own.count}));
    }
    return builder_.finish();
  }

  Schedule broadcast() {
    const Region all = output({0, p_.count});
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      if (p_.rank == p_.root) {
        send_to_all(builder_.piece(all, c));
      } else {
        builder_.recv(p_.root, builder_.piece(all, c));
      }
    }
    return builder_.finish();
  }

  Schedule all_gather() {
    const Parts parts(p_.counts);
    const Extent own{0, p_.counts[p_.rank]};
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(own), c));
        builder_.recv(down(d), builder_.piece(output(parts[down(d)]), c));
      }
      builder_.copy(builder_.piece(input(own), c), builder_.piece(output(parts[p_.rank]), c));
    }
    return builder_.finish();
  }

  Schedule gather() {
    const Extent own{0, p_.counts[p_.rank]};
    if (p_.rank != p_.root) return send_to_root(input(own));
    const Parts parts(p_.counts);
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.recv(up(d), builder_.piece(output(parts[up(d)]), c));
      }
    }
    builder_.copy_pieces(input(own), output(parts[p_.rank]));
    return builder_.finish();
  }

  Schedule scatter() {
    const Region own = output({0, p_.counts[p_.rank]});
    const Parts parts(p_.counts);
    if (p_.rank != p_.root) {
      for (std::size_t c = 0; c < builder_.pieces(own.count); ++c) {
        builder_.recv(p_.root, builder_.piece(own, c));
      }
      return builder_.finish();
    }
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(parts[up(d)]), c));
      }
    }
    builder_.copy_pieces(input(parts[p_.rank]), own);
    return builder_.finish();
  }

  /// Every ordered pair exchanges at least one message, which may be empty, so that mismatched
  /// counts are detected.
  Schedule all_to_all() {
    const Parts sent(p_.counts);
    const Parts received(p_.recv_counts);
    const std::size_t pieces = std::max(
        {builder_.pieces(sent.largest()), builder_.pieces(received.largest()), std::size_t{1}});
    for (std::size_t c = 0; c < pieces; ++c) {
      for (int d = 1; d < p_.size; ++d) {
        const Region out = builder_.piece(input(sent[up(d)]), c);
        const Region in = builder_.piece(output(received[down(d)]), c);
        if (c == 0 || out.count != 0) builder_.send(up(d), out);
        if (c == 0 || in.count != 0) builder_.recv(down(d), in);
      }
    }
    builder_.copy_pieces(input(sent[p_.rank]), output(received[p_.rank]));
    return builder_.finish();
  }

  Schedule barrier() {
    for (int d = 1; d < p_.size; ++d) builder_.send(up(d), output({}));
    for (int d = 1; d < p_.size; ++d) builder_.recv(down(d), output({}));
    return builder_.finish();
  }

 private:
  /// Scratch memory for the operands of a few pieces. It is divided into areas that are used in
  /// turn: `rooms` is their number, `room` the first of them.
  struct Operands {
    Extent room;
    std::size_t rooms = 0;
  };

  int up(int distance) const { return wrap(p_.rank + distance, p_.size); }
  int down(int distance) const { return wrap(p_.rank - distance, p_.size); }

  Operands reserve_operands(std::size_t count) {
    const std::size_t length = std::min(builder_.chunk(), count) * p_.size;
    const std::size_t rooms = std::min(kSlots, builder_.pieces(count));
    return {{builder_.reserve_scratch(rooms * length).offset, length}, rooms};
  }

  void send_to_all(const Region& src) {
    for (int d = 1; d < p_.size; ++d) builder_.send(up(d), src);
  }

  Schedule send_to_root(const Region& src) {
    for (std::size_t c = 0; c < builder_.pieces(src.count); ++c) {
      builder_.send(p_.root, builder_.piece(src, c));
    }
    return builder_.finish();
  }

  void reduce_piece(const Operands& operands, std::size_t c, const Region& own,
                    const Region& result) {
    const Region dst = builder_.piece(result, c);
    if (dst.count == 0) return;
    const std::size_t begin = operands.room.offset + c % operands.rooms * operands.room.count;
    const auto operand = [&](int rank) {
      return scratch({begin + static_cast<std::size_t>(rank) * dst.count, dst.count});
    };
    builder_.copy(builder_.piece(own, c), operand(p_.rank));
    for (int d = 1; d < p_.size; ++d) builder_.recv(down(d), operand(down(d)));
    builder_.fold(begin, p_.size, dst, true);
  }

  const Problem& p_;
  ScheduleBuilder builder_;
};

Schedule build_direct(const Problem& p) {
  if (p.coding) return build_coded(p);
  Direct direct(p);
  switch (p.collective) {
    case Collective::all_reduce:
      return direct.all_reduce();
    case Collective::broadcast:
      return direct.broadcast();
    case Collective::reduce:
      return direct.reduce();
    case Collective::all_gather:
      return direct.all_gather();
    case Collective::gather:
      return direct.gather();
    case Collective::scatter:
      return direct.scatter();
    case Collective::reduce_scatter:
      return direct.reduce_scatter();
    case Collective::all_to_all:
      return direct.all_to_all();
    case Collective::barrier:
      return direct.barrier();
    case Collective::send:
    case Collective::recv:
      break;
  }
  return {};
}

}  // namespace

const AlgorithmEntry kDirect{.name = "direct",
                             .can = always,
                             .build = build_direct,
                             .sums_blocks = true,
                             .is_symmetric = always};

}  // namespace mccl::schedule
