// Every rank sends directly to each rank that needs its data. A rank that reduces gathers all
// operands of a piece in scratch and folds them in rank order, so that 16-bit sums are rounded only
// once.
#include <algorithm>

#include "schedule/algorithm_table.h"
#include "schedule/builder.h"

namespace mccl::schedule {
namespace {

class Direct : public ScheduleWriter {
 public:
  explicit Direct(const Problem& problem) : ScheduleWriter(problem) {}

  void all_reduce() {
    const Extent all{0, p_.count};
    const Operands operands = reserve_operands(p_.count);
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      send_to_all(builder_.piece(input(all), c));
      reduce_piece(operands, c, input(all), output(all));
    }
  }

  void reduce() {
    const Extent all{0, p_.count};
    if (p_.rank != p_.root) return builder_.send_pieces(p_.root, input(all));
    const Operands operands = reserve_operands(p_.count);
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      reduce_piece(operands, c, input(all), output(all));
    }
  }

  void reduce_scatter() {
    const Parts parts(p_.counts);
    const Extent own = parts[p_.rank];
    const Operands operands = reserve_operands(own.count);
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(parts[up(d)]), c));
      }
      reduce_piece(operands, c, input(own), output({0, own.count}));
    }
  }

  void broadcast() {
    const Region all = output({0, p_.count});
    if (p_.rank != p_.root) return builder_.recv_pieces(p_.root, all);
    for (std::size_t c = 0; c < builder_.pieces(p_.count); ++c) {
      send_to_all(builder_.piece(all, c));
    }
  }

  void all_gather() {
    const Parts parts(p_.counts);
    const Extent own{0, p_.counts[p_.rank]};
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(own), c));
        builder_.recv(down(d), builder_.piece(output(parts[down(d)]), c));
      }
      builder_.copy(builder_.piece(input(own), c), builder_.piece(output(parts[p_.rank]), c));
    }
  }

  void gather() {
    const Extent own{0, p_.counts[p_.rank]};
    if (p_.rank != p_.root) return builder_.send_pieces(p_.root, input(own));
    const Parts parts(p_.counts);
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.recv(up(d), builder_.piece(output(parts[up(d)]), c));
      }
    }
    builder_.copy_pieces(input(own), output(parts[p_.rank]));
  }

  void scatter() {
    const Region own = output({0, p_.counts[p_.rank]});
    const Parts parts(p_.counts);
    if (p_.rank != p_.root) return builder_.recv_pieces(p_.root, own);
    for (std::size_t c = 0; c < builder_.pieces(parts.largest()); ++c) {
      for (int d = 1; d < p_.size; ++d) {
        builder_.send(up(d), builder_.piece(input(parts[up(d)]), c));
      }
    }
    builder_.copy_pieces(input(parts[p_.rank]), own);
  }

  /// Every rank sends every other rank at least one message, which may be empty, so that mismatched
  /// counts are detected.
  void all_to_all() {
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
  }

  void barrier() {
    for (int d = 1; d < p_.size; ++d) builder_.send(up(d), output({}));
    for (int d = 1; d < p_.size; ++d) builder_.recv(down(d), output({}));
  }

 private:
  /// Scratch memory for the operands of a few pieces. It is divided into areas that are used in
  /// turn: `rooms` is the number of areas, `room` the first area.
  struct Operands {
    Extent room;
    std::size_t rooms = 0;
  };

  Operands reserve_operands(std::size_t count) {
    const std::size_t length = std::min(builder_.chunk(), count) * p_.size;
    const std::size_t rooms = std::min(kSlots, builder_.pieces(count));
    return {{builder_.reserve_scratch(rooms * length).offset, length}, rooms};
  }

  void send_to_all(const Region& src) {
    for (int d = 1; d < p_.size; ++d) builder_.send(up(d), src);
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
};

constexpr Writes<Direct> kDirectWrites[] = {
    {Collective::all_reduce, &Direct::all_reduce},
    {Collective::broadcast, &Direct::broadcast},
    {Collective::reduce, &Direct::reduce},
    {Collective::all_gather, &Direct::all_gather},
    {Collective::gather, &Direct::gather},
    {Collective::scatter, &Direct::scatter},
    {Collective::reduce_scatter, &Direct::reduce_scatter},
    {Collective::all_to_all, &Direct::all_to_all},
    {Collective::barrier, &Direct::barrier},
};

Schedule build_direct(const Problem& p) {
  return p.coding ? build_coded(p) : write<kDirectWrites>(p);
}

}  // namespace

const AlgorithmEntry kDirect{.name = "direct",
                             .can = always,
                             .build = build_direct,
                             .sums_blocks = true,
                             .is_symmetric = always};

}  // namespace mccl::schedule
