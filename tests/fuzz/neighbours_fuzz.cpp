// The store's records of which ranks have mapped each other. Rank 0 reads one line per rank; the
// others read the table that rank 0 makes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "input.h"
#include "mccl/error.h"
#include "mccl/store.h"
#include "rendezvous/meeting/neighbours.h"
#include "rendezvous/store/exchange.h"

namespace {

class Rumours final : public mccl::Store {
 public:
  Rumours(std::string_view text, bool by_line) : rest_(text), by_line_(by_line) {}
  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    if (rest_.empty()) throw mccl::TimeoutError(key + " was not set");
    const std::size_t end = by_line_ ? std::min(rest_.find('\n'), rest_.size()) : rest_.size();
    std::string said(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return mccl::rendezvous::with_proof({}, key, said);
  }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }

 private:
  std::string_view rest_;
  const bool by_line_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  const int ranks = 1 + static_cast<int>(input.byte() % 8);
  const int rank = static_cast<int>(input.byte()) % ranks;
  Rumours store(input.text(), rank == 0);
  const mccl::SecretBytes no_key;
  const mccl::rendezvous::Exchange exchange(store, no_key, rank, ranks,
                                            mccl::Clock::now() + std::chrono::minutes(1));
  std::vector<int> nodes;
  try {
    nodes = mccl::rendezvous::agree_on_nodes(exchange, rank, ranks, {}).nodes;
  } catch (const mccl::CorruptionError&) {
    return 0;
  } catch (const mccl::TimeoutError&) {
    return 0;
  }
  if (nodes.empty()) return 0;
  mccl::fuzz::require(nodes.size() == static_cast<std::size_t>(ranks), "ranks without node");
  int known = 0;
  for (const int node : nodes) {
    mccl::fuzz::require(node >= 0 && node <= known, "nodes are not counted from 0 on");
    known = std::max(known, node + 1);
  }
  mccl::fuzz::require(known < ranks, "nodes, and no two ranks share one");
  return 0;
}
