// Measures the CPU time of an RDMA message, as the sum of both ends, which run in one thread. The
// simulated driver completes requests immediately, so the device's time is not included.
// of_the_double() measures the simulated driver's own share.
//
// Also counts copies per byte. A send reads memory in place or copies it into a slot. A receive
// copies to the destination (read) or uses the data as an operand of a sum (peek).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "support/rdma_ends.h"
#include "support/verbs_double.h"

namespace mccl::transport::rdma {
namespace {

using mccl::testing::RdmaEnds;
using mccl::testing::VerbsDouble;

Service service_of(const benchmark::State& state) {
  return state.range(0) == 0 ? Service::rc : Service::uc;
}

struct Links {
  explicit Links(Service service) {
    verbs->add("here0", 1);
    verbs->add("there0", 2);
    ends = RdmaEnds::connect(verbs, "here0", "there0", service);
    ends.greet();
    from = ends.link(0);
    to = ends.link(1);
  }

  const std::shared_ptr<VerbsDouble> verbs = std::make_shared<VerbsDouble>();
  RdmaEnds ends;
  std::unique_ptr<RdmaLink> from, to;
};

void of_8_bytes(benchmark::State& state) {
  Links links(service_of(state));
  const std::array<std::byte, 8> sent{};
  std::array<std::byte, 8> got{};
  for (auto _ : state) {
    if (links.from->write(sent) != 8 || links.to->read(got) != 8)
      return state.SkipWithError("a message did not arrive at once");
  }
  state.SetLabel(std::string(name_of(service_of(state))));
}

/// Measures the simulated driver alone: a receive, a send and their completions.
void of_the_double(benchmark::State& state) {
  VerbsDouble verbs;
  verbs.add("here0", 1);
  const auto context = verbs.open("here0");
  std::vector<std::byte> memory(64);
  const auto region = context->register_memory(memory, Access::write);
  const QueuePairOptions options{.sends = 8, .receives = 8};
  const std::array pairs = {context->make_queue_pair(options, nullptr),
                            context->make_queue_pair(options, nullptr)};
  for (std::size_t end : {0, 1}) pairs[end]->connect({.queue_pair = pairs[1 - end]->number()});
  const Piece out{memory.data(), 32, region->key()}, in{memory.data() + 32, 32, region->key()};
  std::array<Completion, 16> ended;
  for (auto _ : state) {
    pairs[1]->post_receive(1, in);
    pairs[0]->post_send(2, {&out, 1}, true);
    if (pairs[0]->poll(ended) != 1 || pairs[1]->poll(ended) != 1)
      return state.SkipWithError("the double did not complete at once");
  }
}

void in_bulk(benchmark::State& state, bool sums) {
  Links links(service_of(state));
  const auto bytes = static_cast<std::size_t>(state.range(1));
  const std::vector<std::byte> sent(bytes);
  std::vector<std::byte> got(bytes);
  for (auto _ : state) {
    for (std::size_t out = 0, in = 0; in < bytes;) {
      out += links.from->write(std::span(sent).subspan(out));
      if (sums) {
        const std::size_t wanted = std::min(bytes - in, links.to->peek_capacity());
        const std::size_t n = links.to->peek(wanted).size();
        links.to->consume(n);
        in += n;
      } else {
        in += links.to->read(std::span(got).subspan(in));
      }
    }
    if (links.from->borrowed() != 0) return state.SkipWithError("the link still uses the memory");
  }
  const RdmaLink::Moved& from = links.from->moved();
  const RdmaLink::Moved& to = links.to->moved();
  const double all = static_cast<double>(state.iterations()) * static_cast<double>(bytes);
  state.counters["copies_sending"] = static_cast<double>(from.sent_by_copy) / all;
  state.counters["copies_receiving"] = static_cast<double>(to.read_by_copy + to.joined) / all;
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(name_of(service_of(state))));
}

void read_in_bulk(benchmark::State& state) { in_bulk(state, false); }
void sum_in_bulk(benchmark::State& state) { in_bulk(state, true); }

BENCHMARK(of_8_bytes)->Arg(0)->Arg(1);
BENCHMARK(of_the_double);
BENCHMARK(read_in_bulk)->ArgsProduct({{0}, {64 << 10, 4 << 20}});
BENCHMARK(sum_in_bulk)->ArgsProduct({{0}, {64 << 10, 4 << 20}});

}  // namespace
}  // namespace mccl::transport::rdma
