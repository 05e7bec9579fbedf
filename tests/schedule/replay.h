// Runs the schedules of a group on numbers, in a random order of the steps that may run. It uses
// neither the library's layout nor the verifier, so that it can check them. Some ranks, chosen at
// random, publish without a copy in the window, where their schedules allow it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace mccl::schedule {

class Replay {
 public:
  Replay(const std::vector<Problem>& problems, const std::vector<Schedule>& schedules,
         unsigned seed)
      : problems_(problems), schedules_(schedules), random_(seed), ranks_(problems.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) prepare(r);
  }

  double* input(int rank) { return ranks_[rank].input; }
  double* output(int rank) { return ranks_[rank].output; }

  /// Runs the steps. Returns false if not all of them could run.
  bool run() {
    for (;;) {
      std::vector<std::pair<std::size_t, std::size_t>> ready;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (const std::size_t i : ranks_[r].open) {
          if (may_run(r, i)) ready.emplace_back(r, i);
        }
      }
      if (ready.empty()) break;
      std::shuffle(ready.begin(), ready.end(), random_);
      // Leaves some steps that may run now until later ones may run too.
      const std::size_t count = 1 + random_() % ready.size();
      for (std::size_t k = 0; k < count; ++k) {
        const auto [r, i] = ready[k];
        if (may_run(r, i)) step(r, i);
      }
    }
    for (const Rank& rank : ranks_) {
      if (!rank.open.empty()) return false;
    }
    return true;
  }

 private:
  struct Rank {
    std::vector<double> in_memory;
    std::vector<double> out_memory;
    std::vector<double> scratch;
    std::vector<double> coded;  // blocks hold elements without rounding
    std::vector<double> sums;
    double* input = nullptr;
    double* output = nullptr;
    std::vector<std::uint32_t> waits;
    std::vector<std::size_t> open;                         // steps that wait for no other step
    std::vector<std::deque<std::vector<double>>> arrived;  // one queue per sender
    std::vector<std::deque<std::size_t>> sends;            // one queue per peer, in order
    std::vector<std::deque<std::size_t>> receives;
    std::vector<double> window;
    Readable read_in_place;
    std::size_t arrivals = 0;
  };

  static std::size_t sum(const std::vector<std::size_t>& counts) {
    std::size_t all = 0;
    for (const std::size_t count : counts) all += count;
    return all;
  }

  void prepare(std::size_t r) {
    const Problem& p = problems_[r];
    Rank& rank = ranks_[r];
    const std::size_t most = p.count + sum(p.counts) + sum(p.recv_counts) + 1;
    rank.in_memory.assign(most, -1e9);
    rank.out_memory.assign(most, -2e9);
    rank.scratch.assign(schedules_[r].scratch_count, -3e9);
    rank.coded.assign(schedules_[r].coded_count, -5e9);
    rank.sums.assign(schedules_[r].sums_count, -6e9);
    rank.window.assign(schedules_[r].window_count, -4e9);
    rank.input = rank.in_memory.data();
    rank.output = rank.out_memory.data();
    const bool at_root = p.rank == p.root;
    if (p.in_place) {
      switch (p.collective) {
        case Collective::all_reduce:
          rank.input = rank.output;
          break;
        case Collective::reduce:
          if (at_root) rank.input = rank.output;
          break;
        case Collective::all_gather:
          rank.input = rank.output + displacement(p.counts, p.rank);
          break;
        case Collective::gather:
          if (at_root) rank.input = rank.output + displacement(p.counts, p.rank);
          break;
        case Collective::reduce_scatter:
          rank.output = rank.input + displacement(p.counts, p.rank);
          break;
        case Collective::scatter:
          if (at_root) rank.output = rank.input + displacement(p.counts, p.rank);
          break;
        default:
          break;
      }
    }
    const Readable& readable = schedules_[r].readable;
    rank.read_in_place = {readable.input && random_() % 2 == 0,
                          readable.output && random_() % 2 == 0};
    rank.waits = schedules_[r].waits;
    rank.arrived.resize(ranks_.size());
    rank.sends.resize(ranks_.size());
    rank.receives.resize(ranks_.size());
    const std::vector<Step>& steps = schedules_[r].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (rank.waits[i] == 0) rank.open.push_back(i);
      if (steps[i].kind == StepKind::send) rank.sends[steps[i].peer].push_back(i);
      if (steps[i].kind == StepKind::recv || steps[i].kind == StepKind::recv_reduce) {
        rank.receives[steps[i].peer].push_back(i);
      }
    }
  }

  bool may_run(std::size_t r, std::size_t i) const {
    const Rank& rank = ranks_[r];
    const Step& step = schedules_[r].steps[i];
    if (step.kind == StepKind::await_readers && !rank.read_in_place.input &&
        !rank.read_in_place.output) {
      return true;
    }
    if (awaits(step.kind)) {
      const auto arrived = [&](std::size_t peer) {
        return !neighbours(r, peer) || ranks_[peer].arrivals >= step.mark;
      };
      if (step.peer != kAllPeers) return arrived(static_cast<std::size_t>(step.peer));
      for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
        if (peer != r && !arrived(peer)) return false;
      }
      return true;
    }
    if (!is_message(step.kind)) return true;
    if (step.kind == StepKind::send) return rank.sends[step.peer].front() == i;
    return rank.receives[step.peer].front() == i && !rank.arrived[step.peer].empty();
  }

  bool neighbours(std::size_t a, std::size_t b) const {
    return !problems_[a].nodes.empty() && problems_[a].nodes[a] == problems_[a].nodes[b];
  }

  double* at(Rank& rank, const Region& region) {
    double* base = region.space == Space::input     ? rank.input
                   : region.space == Space::output  ? rank.output
                   : region.space == Space::scratch ? rank.scratch.data()
                   : region.space == Space::coded   ? rank.coded.data()
                                                    : rank.sums.data();
    return base + region.offset;
  }

  /// Where readers find what the rank published at `window` from `region` of its memory.
  double* published(std::size_t r, std::size_t window, const Region& region) {
    Rank& rank = ranks_[r];
    return rank.read_in_place.holds(region.space) ? at(rank, region) : rank.window.data() + window;
  }

  void step(std::size_t r, std::size_t i) {
    Rank& rank = ranks_[r];
    const Step& step = schedules_[r].steps[i];
    double* src = at(rank, step.src);
    double* dst = at(rank, step.dst);
    switch (step.kind) {
      case StepKind::send:
        ranks_[step.peer].arrived[r].emplace_back(src, src + step.src.count);
        rank.sends[step.peer].pop_front();
        break;
      case StepKind::recv:
      case StepKind::recv_reduce: {
        const std::vector<double> data = std::move(rank.arrived[step.peer].front());
        rank.arrived[step.peer].pop_front();
        rank.receives[step.peer].pop_front();
        const bool adds = step.kind == StepKind::recv_reduce;
        for (std::size_t k = 0; k < data.size(); ++k) dst[k] = adds ? src[k] + data[k] : data[k];
        break;
      }
      case StepKind::copy:
      case StepKind::encode:
      case StepKind::decode:
        for (std::size_t k = 0; k < step.dst.count; ++k) dst[k] = src[k];
        break;
      case StepKind::fold:
      case StepKind::fold_coded: {
        const std::size_t block = problems_[r].coding.block();
        const std::size_t stride = divide_up(step.dst.count, block) * block;
        for (std::size_t k = 0; k < step.dst.count; ++k) {
          double all = src[k];
          for (std::size_t o = 1; o < step.operands; ++o) all += src[o * stride + k];
          dst[k] = all;
        }
        break;
      }
      case StepKind::publish:
        std::copy_n(src, step.src.count, published(r, step.window, step.src));
        break;
      case StepKind::arrive:
        ++rank.arrivals;
        break;
      case StepKind::await:
      case StepKind::await_readers:
        break;
      case StepKind::read:
        std::copy_n(published(step.peer, step.window, step.src), step.dst.count, dst);
        break;
      case StepKind::read_fold:
        for (std::size_t k = 0; k < step.dst.count; ++k) {
          double all = 0;
          for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
            if (peer == r) all += src[k];
            if (peer != r && neighbours(r, peer)) all += published(peer, step.window, step.src)[k];
          }
          dst[k] = all;
        }
        break;
    }
    finish(r, i);
  }

  void finish(std::size_t r, std::size_t i) {
    Rank& rank = ranks_[r];
    std::erase(rank.open, i);
    const Schedule& schedule = schedules_[r];
    for (auto e = schedule.successor_begin[i]; e < schedule.successor_begin[i + 1]; ++e) {
      if (--rank.waits[schedule.successors[e]] == 0) rank.open.push_back(schedule.successors[e]);
    }
  }

  const std::vector<Problem>& problems_;
  const std::vector<Schedule>& schedules_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
};

}  // namespace mccl::schedule
