// What the estimates of all algorithms share. Every estimate adds up terms of three kinds: facts,
// of which most are measured (Facts); numbers that follow from the schedules (pieces, slots,
// batches); and assumptions: what a few calls at the start of a job cannot tell from noise. An
// assumption is a ratio or the size of a cache, never a time, so that times scale with what was
// measured, and says where it comes from and how far a choice depends on it.
#pragma once

#include <vector>

#include "schedule/cost.h"

namespace mccl::schedule {

/// What is asked, in bytes.
struct CallSize {
  CallSize(const Problem& problem, std::size_t element_bytes);

  /// How many messages, or pieces through the window, carry so many bytes.
  double pieces(double bytes) const;

  double ranks = 1;
  double others = 0;  ///< Ranks beside this one.
  int rounds = 0;     ///< log2 of ranks, rounded up.
  bool power_of_two = true;
  double bytes = 0;    ///< Of the whole operation.
  double part = 0;     ///< A rank's part if all were equal.
  double largest = 0;  ///< The largest part.
  double chunk = 1;
  double window = 0;
  double apart = 0;  ///< Input and output are 0: the same memory, 1: not.
};

/// Seconds of messages. A rank's sends share its bandwidth, and so do its receives; the two
/// directions do not.
class LinkTerms {
 public:
  /// Requires that size and facts outlive it.
  LinkTerms(const CallSize& size, const Facts& facts, bool in_shared_memory);

  double latency() const { return latency_; }
  double per_byte() const { return byte_; }
  /// A message's part of a rank's own time.
  double work() const { return work_; }
  /// By how much flows that meet at a rank get in each other's way.
  double crowding() const { return crowding_; }
  double wire(double bytes) const;
  double reduced(double bytes) const { return wire(bytes) + bytes * reduce_; }
  /// The first piece of so many bytes.
  double piece(double bytes) const;
  double reduced_piece(double bytes) const;
  /// A fold over all ranks' operands, of so many bytes together.
  double fold(double bytes) const;
  /// Rounding floats of so many bytes to a codec, or widening them.
  double coded(double bytes, Codec codec) const;
  /// A phase of a pipeline, of all segments: each is as long as its work, or as one piece needs to
  /// pass.
  double phase(double work, double first_piece, int lanes) const;

 private:
  const CallSize& size_;
  double latency_;
  double work_;
  double crowding_;
  double byte_;
  double reduce_;             // seconds per byte
  double coding_;             // the same
  double memory_;             // the same
  double uncached_operands_;  // times as long
};

/// Seconds of what goes through a node's window.
class WindowTerms {
 public:
  /// Requires that size and facts outlive it.
  WindowTerms(const CallSize& size, const Facts& facts) : size_(size), facts_(facts) {}

  /// What the busiest rank does with bytes.
  struct Handled {
    double copied;     ///< Copied or added, between its buffers and the windows.
    double of_memory;  ///< Read and written of the buffers, where no cache holds them.
    double held;       ///< The buffers themselves.
  };

  /// All ranks of a node wait for each other.
  double meeting() const;
  double seconds_of(const Handled& handled) const;
  /// `through` bytes go through the slots, each of which sees `shots` meetings.
  Estimate meeting_at_slots(const Handled& handled, double shots, double through) const;
  /// The same where the root, or the others, may be some calls ahead: nobody meets anybody but
  /// where slots come around again.
  Estimate flow(const Handled& handled, double through) const;

  /// What each rank copies, if it were equal, of what the root and all ranks together do.
  double evened(double root, double all) const;
  /// Bytes of memory that writing results takes: of a sum, and of what is only copied.
  double written(double bytes) const;
  double gathered(double bytes) const;

 private:
  /// How the schedules use their slots: at most four of their halves at a time, all, or in a row.
  enum class Batch { some, all_slots, row };
  struct Cut {
    double count;    ///< Pieces.
    double batches;  ///< In which they go.
  };
  Cut cut(Batch batch, double through) const;
  double piece() const;
  /// What ranks that take turns on a core add.
  double turns(double seconds) const;

  const CallSize& size_;
  const Facts& facts_;
};

/// What the cables add, where they do not join all ranks (Facts::cables): the time that the busiest
/// of them is busy, and the pieces that must pass before all are. The rest is estimated as if bytes
/// were free there, and every message took as long as the longest way on which any goes. It serves
/// for every chunk, and takes a while to make.
class CableCost {
 public:
  /// Requires can(), and facts.cables.
  CableCost(Algorithm algorithm, const Problem& problem, std::size_t element_bytes,
            const Facts& facts);

  const Facts& free() const { return free_; }
  double seconds(std::size_t chunk) const;
  /// Every message goes to a rank that a cable joins to the sender.
  bool keeps_to_cables() const { return keeps_to_cables_; }

 private:
  Facts free_;
  double busiest_s_ = 0;
  bool keeps_to_cables_ = true;
  double pieces_in_a_row_ = 0;
  double element_s_ = 0;  ///< On the fastest cable.
  std::size_t most_ = 0;  ///< Elements that a piece can have.
};

/// An algorithm's estimate; each requires can(). In cost_links.cpp, and the last three in
/// cost_window.cpp.
Estimate direct_estimate(Collective collective, const CallSize& size, const LinkTerms& link);
Estimate ring_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                       int lanes);
/// Of sums that travel in a codec.
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
/// Seconds of what such a schedule does inside the nodes.
double inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double columns);
/// The same of a reduce_scatter in blocks, which shares no results there.
double sums_inside_nodes_estimate(const CallSize& size, const WindowTerms& window, double nodes,
                                  double columns);
/// Over `nodes` nodes, of which the smallest has `columns` ranks.
Estimate hierarchical_estimate(Collective collective, const CallSize& size, const LinkTerms& link,
                               const WindowTerms& window, double nodes, double columns);

}  // namespace mccl::schedule
