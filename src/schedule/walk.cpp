#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/cable_map.h"
#include "schedule/layout.h"
#include "schedule/step_times.h"

namespace mccl::schedule {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

/// A resource that serves one use at a time, such as a core or one direction of a cable.
struct Resource {
  double free = 0;  ///< Time at which it is free again.
  double busy = 0;  ///< Seconds of use so far.

  /// Occupies the resource for `seconds`, as soon as possible from `time` on. Returns the time at
  /// which it is free again.
  double take(double time, double seconds) {
    busy += seconds;
    free = std::max(free, time) + seconds;
    return free;
  }
};

class Walk {
 public:
  Walk(std::span<const Schedule> schedules, const Problem& problem, const StepTimes& times,
       const CableMap* cables)
      : schedules_(schedules),
        p_(problem),
        times_(times),
        cables_(cables),
        ranks_(schedules.size()),
        cable_ways_(cables ? cables->directions() : 0) {
    for (std::uint32_t r = 0; r < schedules.size(); ++r) {
      ranks_[r].first = static_cast<std::uint32_t>(steps_.size());
      ranks_[r].coming.resize(static_cast<std::size_t>(problem.size));
      for (std::size_t i = 0; i < schedules[r].steps.size(); ++i)
        steps_.push_back({.rank = r, .waits = schedules[r].waits[i]});
    }
    find_nodes();
    match_messages();
    for (std::uint32_t n = 0; n < steps_.size(); ++n) {
      if (steps_[n].waits == 0) become_ready(n);
    }
  }

  Walked run() {
    Walked walked;
    while (!queue_.empty()) {
      const auto [time, number] = queue_.top();
      queue_.pop();
      const double end = take(number, time);
      ++ended_;
      walked.seconds = std::max(walked.seconds, end);
      release_successors(number, end);
    }
    const auto note = [&](const Resource& resource) {
      walked.busiest = std::max(walked.busiest, resource.busy);
    };
    for (const Rank& rank : ranks_) {
      note(rank.outgoing);
      note(rank.incoming);
      note(rank.processor);
    }
    for (const Resource& way : cable_ways_) note(way);
    walked.complete = ended_ == steps_.size();
    return walked;
  }

 private:
  /// A step of any rank. Steps are numbered over all ranks: the steps of the first rank, then the
  /// steps of the second, and so on.
  struct State {
    std::uint32_t rank = 0;
    std::uint32_t waits = 0;        ///< Number of steps and messages that the step still awaits.
    std::uint32_t partner = kNone;  ///< For a send: the step that receives the message.
    double ready = 0;
  };

  struct Rank {
    std::uint32_t first = 0;  ///< Number of this rank's first step.
    Resource outgoing, incoming, processor;
    std::vector<std::uint32_t> coming;  ///< Number of messages in flight to this rank, by sender.
    int flows = 0;                 ///< Number of senders with a message in flight to this rank.
    std::vector<double> arrivals;  ///< Times at which this rank has arrived so far.
    std::size_t met = 0;           ///< Value of arrivals.size() at the last meeting (see await()).
    std::vector<std::uint32_t> node;  ///< Ranks whose arrivals this rank may await.
    std::uint32_t awaiting = kNone;   ///< Step in which this rank awaits arrivals; kNone for none.
  };

  bool is_one_of_many() const { return schedules_.size() == 1; }
  const Step& step(std::uint32_t number) const {
    const std::uint32_t rank = steps_[number].rank;
    return schedules_[rank].steps[number - ranks_[rank].first];
  }

  void find_nodes() {
    if (is_one_of_many()) {
      ranks_[0].node = {0};
      return;
    }
    for (const std::vector<int>& node : all_nodes(p_)) {
      for (const int rank : node)
        ranks_[static_cast<std::size_t>(rank)].node = {node.begin(), node.end()};
    }
  }

  /// Finds the receive of each send, and makes the receive wait for the send.
  void match_messages() {
    using Message = std::tuple<int, int, std::uint32_t>;  // receiver, sender, number of step
    std::vector<Message> sends, receives;
    for (std::uint32_t n = 0; n < steps_.size(); ++n) {
      const int rank = static_cast<int>(steps_[n].rank), peer = step(n).peer;
      if (!is_message(step(n).kind)) continue;
      if (step(n).kind == StepKind::send) {
        sends.emplace_back(peer, rank, n);
      } else {
        receives.emplace_back(rank, peer, n);
      }
    }
    if (!is_one_of_many()) {
      std::ranges::sort(sends);
      std::ranges::sort(receives);
    }
    for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      const std::uint32_t receive = std::get<2>(receives[i]);
      steps_[std::get<2>(sends[i])].partner = receive;
      ++steps_[receive].waits;
    }
  }

  void become_ready(std::uint32_t number) {
    const Step& step = this->step(number);
    if (step.kind == StepKind::await && !may_go_on(number)) {
      ranks_[steps_[number].rank].awaiting = number;
      return;
    }
    if (step.kind == StepKind::send && steps_[number].partner != kNone) {
      Rank& receiver = ranks_[steps_[steps_[number].partner].rank];
      if (coming_at(steps_[number].partner)++ == 0) ++receiver.flows;
    }
    queue_.emplace(steps_[number].ready, number);
  }

  /// Number of messages in flight from the sender of this receive to the receiving rank.
  std::uint32_t& coming_at(std::uint32_t receive) {
    return ranks_[steps_[receive].rank].coming[static_cast<std::size_t>(step(receive).peer)];
  }

  void release(std::uint32_t number, double time) {
    steps_[number].ready = std::max(steps_[number].ready, time);
    if (--steps_[number].waits == 0) become_ready(number);
  }

  void release_successors(std::uint32_t number, double end) {
    const Rank& rank = ranks_[steps_[number].rank];
    const Schedule& schedule = schedules_[steps_[number].rank];
    const std::uint32_t i = number - rank.first;
    for (auto e = schedule.successor_begin[i]; e < schedule.successor_begin[i + 1]; ++e)
      release(rank.first + schedule.successors[e], end);
  }

  /// Simulates a step that may begin at `time`. Returns the time at which the step ends.
  double take(std::uint32_t number, double time) {
    const Step& step = this->step(number);
    Rank& rank = ranks_[steps_[number].rank];
    switch (step.kind) {
      case StepKind::send:
        return send(number, time);
      case StepKind::recv:
      case StepKind::recv_reduce:
        return receive(number, time);
      case StepKind::fold:
        return rank.incoming.take(time, times_.arithmetic(step));
      case StepKind::arrive:
        return arrive(number, time);
      case StepKind::await:
        return await(number, time);
      default:
        return rank.processor.take(time, times_.local(step));
    }
  }

  double receive(std::uint32_t number, double time) {
    Rank& rank = ranks_[steps_[number].rank];
    const double message =
        times_.message(times_.bytes(step(number).dst)) * times_.crowding(rank.flows);
    if (--coming_at(number) == 0) --rank.flows;
    return rank.incoming.take(time, message + times_.arithmetic(step(number)));
  }

  double send(std::uint32_t number, double time) {
    const Step& step = this->step(number);
    const auto from = static_cast<int>(steps_[number].rank);
    Resource& outgoing = ranks_[steps_[number].rank].outgoing;
    const double bytes = times_.bytes(step.src);
    const double begin = std::max(time, outgoing.free);
    double end = outgoing.take(time, times_.message(bytes));
    double arrival = begin + times_.latency();  // when the first byte arrives
    if (cables_) {
      const CableMap::Way& way = this->way(from, step.peer);
      for (const auto& [direction, byte_s] : way.directions)
        end = std::max(end, cable_ways_[direction].take(begin, bytes * byte_s));
      arrival = end + way.latency_s;
    }
    if (steps_[number].partner != kNone) release(steps_[number].partner, arrival);
    return end;
  }

  const CableMap::Way& way(int from, int to) {
    const auto [found, is_new] = ways_.try_emplace({from, to});
    if (is_new) found->second = cables_->way(from, to);
    return found->second;
  }

  double arrive(std::uint32_t number, double time) {
    Rank& rank = ranks_[steps_[number].rank];
    const double end = rank.processor.take(time, times_.piece());
    rank.arrivals.push_back(end);
    for (const std::uint32_t r : rank.node) {
      const std::uint32_t awaiting = ranks_[r].awaiting;
      if (awaiting == kNone || !may_go_on(awaiting)) continue;
      ranks_[r].awaiting = kNone;
      queue_.emplace(steps_[awaiting].ready, awaiting);
    }
    return end;
  }

  /// Calls visit(rank) for each rank whose arrival a step awaits.
  template <typename Visit>
  void for_each_awaited(std::uint32_t number, Visit visit) const {
    const std::uint32_t own = steps_[number].rank;
    const int peer = step(number).peer;
    for (const std::uint32_t r : ranks_[own].node) {
      const bool is_other = r != own && (peer == kAllPeers || peer == static_cast<int>(r));
      if (is_other || is_one_of_many()) visit(ranks_[r]);
    }
  }

  bool may_go_on(std::uint32_t number) const {
    bool arrived = true;
    for_each_awaited(number, [&](const Rank& rank) {
      arrived = arrived && rank.arrivals.size() >= step(number).mark;
    });
    return arrived;
  }

  /// Returns the time at which a step that awaits arrivals ends. If ranks wait for each other's
  /// latest arrivals, each of them takes StepTimes::meeting(). If the awaited ranks do not wait for
  /// this rank, the step only takes StepTimes::piece().
  double await(std::uint32_t number, double time) {
    Rank& rank = ranks_[steps_[number].rank];
    const std::uint32_t mark = step(number).mark;
    for_each_awaited(number,
                     [&](const Rank& other) { time = std::max(time, other.arrivals[mark - 1]); });
    if (mark <= rank.met) return time;
    if (mark > rank.arrivals.size()) return time + times_.piece();
    rank.met = rank.arrivals.size();
    return rank.processor.take(time, times_.meeting());
  }

  const std::span<const Schedule> schedules_;
  const Problem& p_;
  const StepTimes& times_;
  const CableMap* const cables_;
  std::vector<State> steps_;
  std::size_t ended_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Resource> cable_ways_;
  std::map<std::pair<int, int>, CableMap::Way> ways_;
  using Event = std::pair<double, std::uint32_t>;  // time and number of a step
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

}  // namespace

Walked walk(std::span<const Schedule> schedules, const Problem& problem, const StepTimes& times,
            const CableMap* cables) {
  return Walk(schedules, problem, times, cables).run();
}

}  // namespace mccl::schedule
