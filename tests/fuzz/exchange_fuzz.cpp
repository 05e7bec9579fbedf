// A rank reads the data of all ranks from a store to which another process can write: a table in
// parts (rank 1) or a card of each rank (rank 0). The first byte selects the number of ranks, the
// rank, and whether the values carry a proof of the job's key. Zero bytes separate the values.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "input.h"
#include "mccl/error.h"
#include "mccl/store.h"
#include "rendezvous/store/exchange.h"

namespace {

class ForgedStore final : public mccl::Store {
 public:
  ForgedStore(std::string_view text, const mccl::SecretBytes* key) : rest_(text), key_(key) {}
  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& name, std::chrono::milliseconds) override {
    if (rest_.empty()) throw mccl::TimeoutError(name + " was not set");
    const std::string value(rest_.substr(0, rest_.find('\0')));
    rest_.remove_prefix(std::min(value.size() + 1, rest_.size()));
    return key_ ? mccl::rendezvous::with_proof(*key_, name, value) : value;
  }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }

 private:
  std::string_view rest_;
  const mccl::SecretBytes* const key_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::Input input(data, size);
  const std::size_t first = input.byte();
  const int ranks = 2 + static_cast<int>(first % 8);
  const int rank = (first & 8) != 0 ? 1 : 0;
  const bool has_proof = (first & 16) != 0;
  const mccl::SecretBytes key("the job's key");
  ForgedStore store(input.text(), has_proof ? &key : nullptr);
  const mccl::rendezvous::Exchange exchange(store, key, rank, ranks, mccl::Clock::now());
  std::vector<std::string> cards;
  try {
    cards = exchange.all_gather("endpoints", "card");
  } catch (const mccl::CorruptionError&) {
    return 0;
  } catch (const mccl::TimeoutError&) {
    return 0;
  }
  mccl::fuzz::require(has_proof, "a value without proof was taken");
  mccl::fuzz::require(cards.size() == static_cast<std::size_t>(ranks), "a rank has no card");
  const std::size_t bytes =
      std::accumulate(cards.begin(), cards.end(), std::size_t{0},
                      [](std::size_t sum, const std::string& card) { return sum + card.size(); });
  mccl::fuzz::require(bytes <= size + 4, "the cards are longer than what the store has sent");
  return 0;
}
