#include "schedule/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "schedule/fault.h"

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
}

Exchange::Queues Exchange::collect(bool sends) const {
  const std::size_t size = schedules_.size();
  Queues queues;
  queues.begin.assign(size * size + 1, 0);
  const auto for_each = [&](auto visit) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      const std::vector<Step>& steps = schedules_[rank].steps;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind == StepKind::copy || steps[i].kind == StepKind::fold) continue;
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
    if (sent != expected) {
      fail(problems_[from], schedules_[from], index,
           fmt::format("message {} to rank {} has {} elements, but its receive, step {} there, "
                       "has {}",
                       k, to, sent, receives[k] - begin_[to], expected));
    }
  }
  if (sends.size() != receives.size()) {
    throw Fault{fmt::format("rank {} sends {} messages to rank {}, which receives {}", from,
                            sends.size(), to, receives.size())};
  }
}

std::vector<std::uint32_t> Exchange::order() const {
  std::vector<std::uint32_t> events(steps());
  std::vector<std::uint32_t> waits(steps(), 0);
  for (std::uint32_t n = 0; n < steps(); ++n) {
    const bool received = partner_[n] != kNone && step(n).kind != StepKind::send;
    events[n] = received ? partner_[n] : n;
    waits[events[n]] += schedules_[rank_[n]].waits[index_of(n)] + (follows_send_[n] ? 1 : 0);
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
