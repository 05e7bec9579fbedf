#include "rendezvous/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "mccl/error.h"
#include "rendezvous/proof.h"
#include "transport/shm/local_socket.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;
using transport::shm::Descriptor;
using transport::shm::LocalConnection;
using transport::shm::LocalListener;

constexpr std::uint64_t kMagic = 0x6d63636c2d6e6272ULL;
constexpr std::string_view kProofLabel = "mccl neighbour";

/// What a rank says of itself; the arena and the bell's pipe come with it. The proof covers the
/// rank and both names, so that it is good for this pair and direction only.
struct Introduction {
  std::uint64_t magic = kMagic;
  std::int32_t rank = -1;
  std::int32_t to = -1;
  Proof proof = {};
};

std::string join(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, " ")); }

/// Numbers from another rank: those outside of the job are left out.
std::vector<int> parse_ranks(const std::string& text, int size) {
  std::vector<int> ranks;
  std::istringstream stream(text);
  for (int rank = 0; stream >> rank;) {
    if (rank >= 0 && rank < size) ranks.push_back(rank);
  }
  return ranks;
}

class Meeting {
 public:
  explicit Meeting(const NeighbourOptions& options)
      : o_(options), names_(static_cast<std::size_t>(options.size)) {}

  Neighbourhood run() {
    std::optional<LocalListener> listener;
    if (o_.arena) listener.emplace(o_.size);
    publish("local", listener ? listener->name() : std::string("-"));
    for (int peer = 0; peer < o_.size; ++peer) names_[peer] = published("local", peer);
    dial_lower();
    if (listener) accept_higher(*listener);
    for (auto& [peer, connection] : dialled_) complete(peer, connection);
    return agree();
  }

 private:
  void publish(const char* what, const std::string& value) const {
    o_.store->set(fmt::format("mccl/{}/{}", what, o_.rank), value);
  }
  std::string published(const char* what, int peer) const {
    const auto left = std::chrono::duration_cast<milliseconds>(o_.deadline - Clock::now());
    return o_.store->get(fmt::format("mccl/{}/{}", what, peer), std::max(milliseconds(1), left));
  }

  Proof proof(int from, int to) const {
    const std::string said = fmt::format("{} {} {} {}", from, to, names_[from], names_[to]);
    return prove(o_.job_key, kProofLabel, std::as_bytes(std::span(said)));
  }

  void introduce(const LocalConnection& connection, int peer) const {
    Introduction mine;
    mine.rank = o_.rank;
    mine.to = peer;
    mine.proof = proof(o_.rank, peer);
    const std::array<int, 2> passed = {o_.arena->descriptor(), o_.bell_pipe};
    connection.send(std::as_bytes(std::span(&mine, 1)), passed);
  }

  /// Who it is, its memory mapped; -1 for a stranger or when it cannot be mapped.
  int take_introduction(const LocalConnection& connection) {
    Introduction theirs;
    std::vector<Descriptor> passed =
        connection.receive(std::as_writable_bytes(std::span(&theirs, 1)), o_.deadline);
    const bool known = theirs.magic == kMagic && theirs.rank >= 0 && theirs.rank < o_.size &&
                       theirs.to == o_.rank && passed.size() == 2 &&
                       same_proof(theirs.proof, proof(theirs.rank, o_.rank));
    if (!known) return -1;
    Neighbour neighbour{transport::shm::PeerArena(std::move(passed[0])), std::move(passed[1])};
    result_.neighbours.insert_or_assign(theirs.rank, std::move(neighbour));
    return theirs.rank;
  }

  void dial_lower() {
    std::vector<int> reached;
    for (int peer = 0; peer < o_.rank && o_.arena; ++peer) {
      if (names_[peer] == "-") continue;
      LocalConnection connection = LocalConnection::dial(names_[peer]);
      if (!connection || !connection.same_user()) continue;
      introduce(connection, peer);
      dialled_.emplace(peer, std::move(connection));
      reached.push_back(peer);
    }
    publish("dialled", join(reached));
  }

  /// Those that say they have reached this rank wait in the listener's queue, in any order.
  void accept_higher(const LocalListener& listener) {
    std::size_t expected = 0;
    for (int peer = o_.rank + 1; peer < o_.size; ++peer) {
      const std::vector<int> reached = parse_ranks(published("dialled", peer), o_.size);
      expected += static_cast<std::size_t>(std::count(reached.begin(), reached.end(), o_.rank));
    }
    while (expected > 0) {
      const LocalConnection connection = listener.accept(o_.deadline);
      if (!connection.same_user()) continue;
      try {
        const int peer = take_introduction(connection);
        if (peer <= o_.rank) continue;
        --expected;
        introduce(connection, peer);
      } catch (const PeerError&) {
        continue;  // a stranger that hung up; who is expected says more if it fails
      }
    }
  }

  void complete(int peer, const LocalConnection& connection) {
    try {
      if (take_introduction(connection) != peer) result_.neighbours.erase(peer);
    } catch (const TimeoutError&) {
      throw;
    } catch (const Error&) {
      result_.neighbours.erase(peer);
    }
  }

  Neighbourhood agree() {
    std::vector<int> mine;
    for (const auto& [peer, neighbour] : result_.neighbours) mine.push_back(peer);
    publish("neighbours", join(mine));
    std::vector<std::vector<int>> mapped;
    for (int peer = 0; peer < o_.size; ++peer) {
      mapped.push_back(parse_ranks(published("neighbours", peer), o_.size));
    }
    result_.nodes = nodes_from(mapped);
    std::erase_if(result_.neighbours, [this](const auto& entry) {
      return result_.nodes.empty() || result_.nodes[entry.first] != result_.nodes[o_.rank];
    });
    return std::move(result_);
  }

  const NeighbourOptions& o_;
  std::vector<std::string> names_;  // of the local listeners, by rank; "-" for none
  std::map<int, LocalConnection> dialled_;
  Neighbourhood result_;
};

}  // namespace

std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped) {
  const std::size_t size = mapped.size();
  std::vector<std::vector<bool>> says(size, std::vector<bool>(size, false));
  for (std::size_t a = 0; a < size; ++a) {
    for (const int b : mapped[a]) says[a][static_cast<std::size_t>(b)] = true;
  }
  std::vector<int> nodes(size, -1);
  bool any = false;
  int next = 0;
  for (std::size_t first = 0; first < size; ++first) {
    if (nodes[first] >= 0) continue;
    std::vector<std::size_t> members{first};
    for (std::size_t other = first + 1; other < size; ++other) {
      const bool fits =
          nodes[other] < 0 && std::all_of(members.begin(), members.end(), [&](std::size_t member) {
            return says[member][other] && says[other][member];
          });
      if (fits) members.push_back(other);
    }
    for (const std::size_t member : members) nodes[member] = next;
    any |= members.size() > 1;
    ++next;
  }
  if (!any) nodes.clear();
  return nodes;
}

Neighbourhood meet_neighbours(const NeighbourOptions& options) { return Meeting(options).run(); }

}  // namespace mccl::rendezvous
