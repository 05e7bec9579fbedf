// What other ranks say in the store of whom they have reached and mapped: a line each.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "input.h"
#include "mccl/store.h"
#include "rendezvous/neighbours.h"

namespace {

/// Whatever is asked for is the next line; nobody has a local socket.
class Rumours final : public mccl::Store {
 public:
  explicit Rumours(std::string_view text) : rest_(text) {}
  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    if (key.starts_with("mccl/local/")) return "-";
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string line(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return line;
  }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }

 private:
  std::string_view rest_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  mccl::rendezvous::NeighbourOptions options;
  options.size = 1 + static_cast<int>(input.byte() % 8);
  options.rank = static_cast<int>(input.byte()) % options.size;
  options.store = std::make_shared<Rumours>(input.text());
  options.deadline = mccl::Clock::now() + std::chrono::minutes(1);
  const auto [neighbours, nodes] = mccl::rendezvous::meet_neighbours(options);
  mccl::fuzz::require(neighbours.empty(), "a neighbour that nobody has met");
  if (nodes.empty()) return 0;
  mccl::fuzz::require(nodes.size() == static_cast<std::size_t>(options.size), "ranks without node");
  int known = 0;
  for (const int node : nodes) {
    mccl::fuzz::require(node >= 0 && node <= known, "nodes are not counted from 0 on");
    known = std::max(known, node + 1);
  }
  mccl::fuzz::require(known < options.size, "nodes, and no two ranks share one");
  return 0;
}
