// Runs the conformance suite of links on MemoryLink, which other tests use, and on the loopback
// transport, whose links are made as the engine makes them.
#include "support/memory_link.h"

#include <array>

#include "support/loopback_transport.h"
#include "transport/link_conformance.h"

namespace mccl::transport {
namespace {

using testing::LoopbackEnds;
using testing::LoopbackTransport;
using testing::MemoryLink;

constexpr LinkKey kKey{.group = 5, .purpose = Purpose::collective, .rail = 0};
const Clock::time_point kNever = Clock::time_point::max();

class WaitingForEvents final : public Waiter {
 public:
  explicit WaitingForEvents(const MemoryLink* const* link) : link_(link) {}
  void prepare() override { seen_ = (*link_)->events(); }
  bool wait(const Link&, short, int timeout_ms) override {
    return (*link_)->wait(seen_, std::chrono::milliseconds(timeout_ms));
  }

 private:
  const MemoryLink* const* link_;
  std::uint64_t seen_ = 0;
};

/// Makes a link that rank 1 dials to rank 0.
LinkPair connect() {
  const auto ends = std::make_shared<LoopbackEnds>();
  LoopbackTransport low(ends);
  LoopbackTransport high(ends);
  const Making offer = high.dial(WorldRank(0), kKey, kNever);
  Making taken = low.hear(WorldRank(1), kKey, *offer.blob);
  Making made = high.hear(WorldRank(0), kKey, *taken.blob);
  return {std::move(made.link), std::move(taken.link)};
}

/// `make` returns the two ends of a new link.
LinkFactory waiting_for_events(const char* name, const std::function<LinkPair()>& make) {
  const auto ends = std::make_shared<std::array<const MemoryLink*, 2>>();
  return {name,
          [ends, make] {
            LinkPair pair = make();
            *ends = {dynamic_cast<MemoryLink*>(pair.first.get()),
                     dynamic_cast<MemoryLink*>(pair.second.get())};
            return pair;
          },
          [ends](int end) {
            return std::make_unique<WaitingForEvents>(&(*ends)[static_cast<std::size_t>(end)]);
          }};
}

LinkFactory memory_links(const char* name, std::size_t capacity) {
  return waiting_for_events(name, [capacity]() -> LinkPair { return MemoryLink::make(capacity); });
}

INSTANTIATE_TEST_SUITE_P(Loopback, LinkConformance,
                         ::testing::Values(waiting_for_events("both", connect)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Memory, LinkConformance,
                         ::testing::Values(memory_links("usual", MemoryLink::kUsualCapacity),
                                           memory_links("large", std::size_t{1} << 20)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl::transport
