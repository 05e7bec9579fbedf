// Runs the conformance suite of links on MemoryLink, which other tests use.
#include "support/memory_link.h"

#include "transport/link_conformance.h"

namespace mccl::transport {
namespace {

using testing::MemoryLink;

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

LinkFactory memory_links(const char* name, std::size_t capacity) {
  const auto ends = std::make_shared<std::array<const MemoryLink*, 2>>();
  return {name,
          [ends, capacity]() -> LinkPair {
            auto [first, second] = MemoryLink::make(capacity);
            *ends = {first.get(), second.get()};
            return {std::move(first), std::move(second)};
          },
          [ends](int end) {
            return std::make_unique<WaitingForEvents>(&(*ends)[static_cast<std::size_t>(end)]);
          }};
}

INSTANTIATE_TEST_SUITE_P(Memory, LinkConformance,
                         ::testing::Values(memory_links("usual", MemoryLink::kUsualCapacity),
                                           memory_links("large", std::size_t{1} << 20)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mccl::transport
