#include "support/verifier/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "schedule/layout.h"
#include "support/verifier/defect.h"

namespace mccl::schedule {

Exchange::Exchange(std::span<const Problem> problems, std::span<const Schedule> schedules)
    : problems_(problems), schedules_(schedules), begin_(schedules.size() + 1) {
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    begin_[r + 1] = begin_[r] + static_cast<std::uint32_t>(schedules[r].steps.size());
    rank_.resize(begin_[r + 1], static_cast<int>(r));
  }
  partner_.assign(steps(), kNone);
  next_send_.assign(steps(), kNone);
  follows_send_.assign(steps(), false);
  const Queues sends = collect(true);
  const Queues receives = collect(false);
  const int size = static_cast<int>(schedules.size());
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const auto queue = [index = from * size + to](const Queues& queues) {
        return std::span(queues.steps)
            .subspan(queues.begin[index], queues.begin[index + 1] - queues.begin[index]);
      };
      pair(from, to, queue(sends), queue(receives));
    }
  }
  collect_arrivals();
}

template <typename Visit>
void Exchange::for_each_await(Visit visit) const {
  for (std::size_t r = 0; r < schedules_.size(); ++r) {
    const std::vector<Step>& steps = schedules_[r].steps;
    const int rank = static_cast<int>(r);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!awaits(steps[i].kind)) continue;
      for (const int peer : node_members(problems_[r], rank)) {
        if (peer == rank || (steps[i].peer != kAllPeers && steps[i].peer != peer)) continue;
        if (steps[i].mark < 1 || steps[i].mark > arrivals_[peer].size()) {
          fail(problems_[r], schedules_[r], i,
               fmt::format("waits for arrival {} of rank {}, which arrives {} times", steps[i].mark,
                           peer, arrivals_[peer].size()));
        }
        visit(number(rank, i), arrival(peer, steps[i].mark));
      }
    }
  }
}

void Exchange::collect_arrivals() {
  arrivals_.resize(schedules_.size());
  arrival_place_.assign(steps(), 0);
  std::uint32_t places = 0;
  for (std::uint32_t n = 0; n < steps(); ++n) {
    if (step(n).kind != StepKind::arrive) continue;
    arrivals_[rank_[n]].push_back(n);
    arrival_place_[n] = places++;
  }
  compare_nodes();
  awaits_begin_.assign(places + 1, 0);
  awaited_.assign(steps(), 0);
  for_each_await([&](std::uint32_t await, std::uint32_t arrival) {
    ++awaits_begin_[arrival_place_[arrival] + 1];
    ++awaited_[await];
  });
  std::partial_sum(awaits_begin_.begin(), awaits_begin_.end(), awaits_begin_.begin());
  awaits_.resize(awaits_begin_.back());
  std::vector<std::uint32_t> at = awaits_begin_;
  for_each_await([&](std::uint32_t await, std::uint32_t arrival) {
    awaits_[at[arrival_place_[arrival]]++] = await;
  });
}

void Exchange::compare_nodes() const {
  for (std::size_t r = 0; r < schedules_.size(); ++r) {
    const int first = node_members(problems_[r], static_cast<int>(r))[0];
    const std::size_t arrivals = arrivals_[r].size();
    if (arrivals != arrivals_[first].size() || arrivals != schedules_[r].arrivals) {
      throw Defect{
          fmt::format("rank {} arrives {} times, says {}, and rank {} of its node {} times", r,
                      arrivals, schedules_[r].arrivals, first, arrivals_[first].size())};
    }
    // A call advances a rank's place in the window by this count, which must be the same on all
    // ranks of a node.
    const std::size_t used = schedules_[r].window_count;
    if (used != schedules_[first].window_count) {
      throw Defect{fmt::format("rank {} uses {} elements of the window, and rank {} of its node {}",
                               r, used, first, schedules_[first].window_count)};
    }
  }
}

Exchange::Queues Exchange::collect(bool sends) const {
  const std::size_t size = schedules_.size();
  Queues queues;
  queues.begin.assign(size * size + 1, 0);
  const auto for_each = [&](auto visit) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      const std::vector<Step>& steps = schedules_[rank].steps;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (!is_message(steps[i].kind)) continue;
        if ((steps[i].kind == StepKind::send) != sends) continue;
        const auto peer = static_cast<std::size_t>(steps[i].peer);
        visit(sends ? rank * size + peer : peer * size + rank, number(static_cast<int>(rank), i));
      }
    }
  };
  for_each([&](std::size_t queue, std::uint32_t) { ++queues.begin[queue + 1]; });
  std::partial_sum(queues.begin.begin(), queues.begin.end(), queues.begin.begin());
  queues.steps.resize(queues.begin.back());
  std::vector<std::uint32_t> at = queues.begin;
  for_each([&](std::size_t queue, std::uint32_t step) { queues.steps[at[queue]++] = step; });
  return queues;
}

void Exchange::pair(int from, int to, std::span<const std::uint32_t> sends,
                    std::span<const std::uint32_t> receives) {
  for (std::size_t k = 0; k < std::min(sends.size(), receives.size()); ++k) {
    partner_[sends[k]] = receives[k];
    partner_[receives[k]] = sends[k];
    follows_send_[sends[k]] = k > 0;
    if (k > 0) next_send_[sends[k - 1]] = sends[k];
    const std::size_t index = sends[k] - begin_[from];
    const std::size_t sent = schedules_[from].steps[index].src.count;
    const std::size_t expected = schedules_[to].steps[receives[k] - begin_[to]].dst.count;
    const Space from_space = schedules_[from].steps[index].src.space;
    const Space to_space = schedules_[to].steps[receives[k] - begin_[to]].dst.space;
    if ((holds_blocks(from_space) || holds_blocks(to_space)) && from_space != to_space) {
      fail(problems_[from], schedules_[from], index,
           fmt::format("message {} to rank {} holds blocks on one rank only", k, to));
    }
    if (sent != expected) {
      fail(problems_[from], schedules_[from], index,
           fmt::format("message {} to rank {} has {} elements, but its receive, step {} there, "
                       "has {}",
                       k, to, sent, receives[k] - begin_[to], expected));
    }
  }
  if (sends.size() != receives.size()) {
    throw Defect{fmt::format("rank {} sends {} messages to rank {}, which receives {}", from,
                             sends.size(), to, receives.size())};
  }
}

std::vector<std::uint32_t> Exchange::order() const {
  std::vector<std::uint32_t> events(steps());
  std::vector<std::uint32_t> waits(steps(), 0);
  for (std::uint32_t n = 0; n < steps(); ++n) {
    const bool received = partner_[n] != kNone && step(n).kind != StepKind::send;
    events[n] = received ? partner_[n] : n;
    waits[events[n]] +=
        schedules_[rank_[n]].waits[index_of(n)] + (follows_send_[n] ? 1 : 0) + awaited_[n];
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t n = 0; n < steps(); ++n) {
    if (events[n] == n && waits[n] == 0) ready.push_back(n);
  }
  const auto release = [&](std::uint32_t number) {
    if (--waits[events[number]] == 0) ready.push_back(events[number]);
  };
  std::vector<std::uint32_t> order;
  order.reserve(steps());
  while (!ready.empty()) {
    const std::uint32_t event = ready.back();
    ready.pop_back();
    order.push_back(event);
    for_each_successor(event, release);
    if (partner_[event] != kNone) for_each_successor(partner_[event], release);
    if (next_send_[event] != kNone) release(next_send_[event]);
  }
  for (std::uint32_t n = 0; n < steps(); ++n) {
    if (waits[events[n]] == 0) continue;
    fail(problems_[rank_[n]], schedules_[rank_[n]], index_of(n),
         "deadlock: this step can never start");
  }
  return order;
}

}  // namespace mccl::schedule
