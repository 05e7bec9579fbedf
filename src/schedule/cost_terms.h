// Terms that the estimates of all algorithms share. Every estimate combines three kinds of values:
// facts, most of which are measured (Facts); counts that follow from the schedules (pieces, slots,
// batches); and assumptions, which the few calls measured at the start of a job cannot distinguish
// from noise. An assumption is a ratio or a cache size and never a time, so that times scale with
// the measurements. Its comment states its source and how strongly the choice depends on it.
#pragma once

#include <vector>

#include "schedule/cost.h"

namespace mccl::schedule {

/// The size of a call. Sizes of data are in bytes.
struct CallSize {
  CallSize(const Problem& problem, std::size_t element_bytes);

  /// Returns the number of messages, or of pieces through the window, that carry `bytes` bytes.
  double pieces(double bytes) const;

  double ranks = 1;
  double others = 0;  ///< Number of ranks other than this one.
  int rounds = 0;     ///< log2 of ranks, rounded up.
  bool power_of_two = true;
  double bytes = 0;    ///< Size of the whole operation's data.
  double part = 0;     ///< Size of a rank's part if all parts were equal.
  double largest = 0;  ///< Size of the largest part.
  double chunk = 1;
  double window = 0;
  double apart = 0;  ///< 0 if input and output are the same memory, else 1.
};

/// Times of messages, in seconds. A rank's sends share its bandwidth, and so do its receives, but
/// the two directions are independent.
class LinkTerms {
 public:
  /// `size` and `facts` must outlive this object.
  LinkTerms(const CallSize& size, const Facts& facts, bool in_shared_memory);

  double latency() const { return latency_; }
  double per_byte() const { return byte_; }
  /// Time for which a message occupies the rank itself.
  double work() const { return work_; }
  /// Factor by which flows that meet at a rank slow each other down; at least 1.
  double crowding() const { return crowding_; }
  /// Time to send or receive `bytes` bytes, without the latency.
  double wire(double bytes) const;
  double reduced(double bytes) const { return wire(bytes) + bytes * reduce_; }
  /// Time of the first piece of a transfer of `bytes` bytes.
  double piece(double bytes) const;
  double reduced_piece(double bytes) const;
  /// Time of a fold over the operands of all ranks, which total `bytes`.
  double fold(double bytes) const;
  /// Time to encode or decode `bytes` bytes of floats.
  double coded(double bytes, Codec codec) const;
  /// Time of one phase of a pipeline over all segments. Each segment takes its share of `work`, or
  /// as long as its first piece needs to arrive, whichever is longer.
  double phase(double work, double first_piece, int lanes) const;

 private:
  const CallSize& size_;
  double latency_;
  double work_;
  double crowding_;
  double byte_;
  double reduce_;             // Seconds per byte.
  double coding_;             // Seconds per byte.
  double memory_;             // Seconds per byte.
  double uncached_operands_;  // Slowdown factor.
};

/// Times of data exchange through a node's window, in seconds.
class WindowTerms {
 public:
  /// `size` and `facts` must outlive this object.
  WindowTerms(const CallSize& size, const Facts& facts) : size_(size), facts_(facts) {}

  /// Bytes that the busiest rank handles.
  struct Handled {
    double copied;     ///< Bytes copied or added between its buffers and the windows.
    double of_memory;  ///< Bytes of its buffers read and written if no cache holds them.
    double held;       ///< Size of its buffers, in bytes.
  };

  /// Time for all ranks of a node to wait for each other.
  double meeting() const;
  double seconds_of(const Handled& handled) const;
  /// Estimates a schedule that passes `through` bytes through the slots, with `shots` meetings per
  /// batch.
  Estimate meeting_at_slots(const Handled& handled, double shots, double through) const;
  /// Estimates a schedule whose data flow from or to a root. The root or the other ranks may be
  /// some calls ahead, so ranks wait for each other only when slots are reused.
  Estimate flow(const Handled& handled, double through) const;

  /// Returns the bytes that each rank would copy if all copied the same amount in the same time.
  /// The root copies `root` bytes, and all ranks together copy `all` bytes.
  double evened(double root, double all) const;
  /// Return the bytes of memory traffic for results of `bytes` bytes: written() for sums,
  /// gathered() for plain copies.
  double written(double bytes) const;
  double gathered(double bytes) const;

 private:
  /// How a schedule uses its slots. `some`: in batches of up to kOneShotBatch slots and half of the
  /// window. `all_slots`: all in one step. `row`: one by one.
  enum class Batch { some, all_slots, row };
  struct Cut {
    double count;    ///< Number of pieces.
    double batches;  ///< Number of batches of pieces.
  };
  Cut cut(Batch batch, double through) const;
  double piece() const;
  /// Time that process switches of `seconds` each add; 0 unless ranks share cores.
  double turns(double seconds) const;

  const CallSize& size_;
  const Facts& facts_;
};

/// The cost that cables add if they do not join all ranks (Facts::cables): the time for which the
/// busiest cable is busy, and the time of the pieces that must pass before all cables are busy. The
/// rest of the cost is estimated with free(). One object serves all chunk sizes. It is slow to
/// construct, since that builds the schedules of all ranks.
class CableCost {
 public:
  /// Requires can() and facts.cables.
  CableCost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

  /// Facts with which bytes take no time, and every message has the latency of the longest path
  /// that any message takes.
  const Facts& free() const { return free_; }
  double seconds(std::size_t chunk) const;
  /// True if a cable joins the sender and the receiver of every message.
  bool keeps_to_cables() const { return keeps_to_cables_; }

 private:
  Facts free_;
  double busiest_s_ = 0;
  bool keeps_to_cables_ = true;
  double pieces_in_a_row_ = 0;
  double element_s_ = 0;  ///< Seconds per element on the fastest cable.
  std::size_t most_ = 0;  ///< Maximum number of elements in a piece.
};

/// Estimates of single algorithms; each requires can(). They are defined in cost_links.cpp, and
/// from one_shot_estimate() on in cost_window.cpp.
Estimate direct_estimate(Collective collective, const CallSize& size, const LinkTerms& link);
Estimate ring_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                       int lanes);
/// Estimates a direct exchange of sums that travel in a codec.
Estimate coded_estimate(const Problem& problem, const CallSize& size, const LinkTerms& link,
                        std::size_t element_bytes);
Estimate pairwise_estimate(Collective collective, const CallSize& size, const LinkTerms& link);
Estimate recursive_doubling_estimate(Collective collective, const CallSize& size,
                                     const LinkTerms& link);
Estimate binomial_tree_estimate(Collective collective, const CallSize& size, const LinkTerms& link);
Estimate chain_estimate(Collective collective, const CallSize& size, const LinkTerms& link);
Estimate dissemination_estimate(const CallSize& size, const LinkTerms& link);
Estimate cable_tree_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                             const std::vector<int>& parents);
Estimate one_shot_estimate(Collective collective, const CallSize& size, const WindowTerms& window);
Estimate two_shot_estimate(const CallSize& size, const WindowTerms& window);
/// Seconds that a hierarchical schedule spends inside the nodes.
double inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double columns);
/// Seconds that a hierarchical reduce_scatter in blocks of a codec spends inside the nodes. Such a
/// schedule shares no results there.
double sums_inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double nodes,
                                  double columns);
/// Estimates a schedule over `nodes` nodes, of which the smallest has `columns` ranks.
Estimate hierarchical_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                               const WindowTerms& window, double nodes, double columns);

}  // namespace mccl::schedule
