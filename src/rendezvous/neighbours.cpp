#include "rendezvous/neighbours.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "mccl/error.h"
#include "rendezvous/proof.h"
#include "rendezvous/waiting.h"
#include "transport/shm/local_socket.h"

namespace mccl::rendezvous {
namespace {

using std::chrono::milliseconds;
using transport::shm::Descriptor;
using transport::shm::LocalConnection;
using transport::shm::LocalListener;

constexpr std::uint64_t kMagic = 0x6d63636c2d6e6272ULL;
constexpr std::string_view kProofLabel = "mccl neighbour";

/// How long ranks that must already be in the queue are looked for among strangers.
constexpr std::chrono::seconds kPatience{5};
/// Connections that have not introduced themselves; the oldest goes first.
constexpr std::size_t kMostStrangers = 64;

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
    if (o_.arena) listener.emplace(o_.size + static_cast<int>(kMostStrangers));
    publish("local", listener ? listener->name() : std::string("-"));
    for (int peer = 0; peer < o_.size; ++peer) names_[peer] = published("local", peer);
    dial_lower();
    if (listener) accept_higher(*listener);
    listener.reset();  // whoever is still in its queue learns that nobody will answer
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

  struct Introduced {
    int rank = -1;  // of a stranger
    std::vector<Descriptor> passed;
  };

  /// Throws PeerError, TimeoutError.
  Introduced take_introduction(const LocalConnection& connection,
                               Clock::time_point deadline) const {
    Introduction theirs;
    Introduced introduced;
    introduced.passed = connection.receive(std::as_writable_bytes(std::span(&theirs, 1)), deadline);
    const bool known = theirs.magic == kMagic && theirs.rank >= 0 && theirs.rank < o_.size &&
                       theirs.to == o_.rank && introduced.passed.size() == 2 &&
                       same_proof(theirs.proof, proof(theirs.rank, o_.rank));
    if (known) introduced.rank = theirs.rank;
    return introduced;
  }

  /// Throws Error when its memory cannot be mapped.
  void remember(Introduced introduced) {
    Neighbour neighbour{transport::shm::PeerArena(std::move(introduced.passed[0])),
                        std::move(introduced.passed[1])};
    result_.neighbours.insert_or_assign(introduced.rank, std::move(neighbour));
  }

  void dial_lower() {
    const Clock::time_point deadline = std::min(o_.deadline, Clock::now() + kPatience);
    std::vector<int> reached;
    for (int peer = 0; peer < o_.rank && o_.arena; ++peer) {
      if (names_[peer] == "-") continue;
      LocalConnection connection = LocalConnection::dial(names_[peer], deadline);
      if (!connection || !connection.same_user()) continue;
      try {
        introduce(connection, peer);
      } catch (const PeerError&) {
        continue;
      }
      dialled_.emplace(peer, std::move(connection));
      reached.push_back(peer);
    }
    publish("dialled", join(reached));
  }

  /// Those that say they have reached this rank wait in the listener's queue with their
  /// introductions sent, in any order, and strangers among them.
  void accept_higher(const LocalListener& listener) {
    std::set<int> expected;
    for (int peer = o_.rank + 1; peer < o_.size; ++peer) {
      const std::vector<int> reached = parse_ranks(published("dialled", peer), o_.size);
      if (std::count(reached.begin(), reached.end(), o_.rank) != 0) expected.insert(peer);
    }
    const Clock::time_point limit = std::min(o_.deadline, Clock::now() + kPatience);
    std::deque<LocalConnection> unknown;
    while (!expected.empty() && Clock::now() < o_.deadline) {
      std::vector<pollfd> entries{{listener.descriptor(), POLLIN, 0}};
      for (const LocalConnection& each : unknown) entries.push_back({each.descriptor(), POLLIN, 0});
      const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(limit));
      if (ready == 0 || (ready < 0 && errno != EINTR)) return;
      for (std::size_t i = entries.size() - 1; i > 0; --i) {
        if (entries[i].revents == 0) continue;
        hear(unknown[i - 1], expected);
        unknown.erase(unknown.begin() + static_cast<std::ptrdiff_t>(i - 1));
      }
      if (entries[0].revents != 0) unknown.push_back(listener.accept(o_.deadline));
      if (unknown.size() > kMostStrangers) unknown.pop_front();
    }
  }

  /// Whoever belongs to the job has sent everything in one piece.
  void hear(const LocalConnection& connection, std::set<int>& expected) {
    if (!connection.same_user()) return;
    try {
      Introduced introduced = take_introduction(connection, Clock::now());
      const int peer = introduced.rank;
      if (expected.erase(peer) == 0) return;
      remember(std::move(introduced));
      introduce(connection, peer);
    } catch (const Error&) {
      return;  // a stranger, or a rank whose memory cannot be mapped here
    }
  }

  void complete(int peer, const LocalConnection& connection) {
    try {
      Introduced introduced = take_introduction(connection, o_.deadline);
      if (introduced.rank == peer) remember(std::move(introduced));
    } catch (const TimeoutError&) {
      throw TimeoutError(fmt::format(
          "rank {} met rank {} on this machine, which then said nothing more until the time to "
          "connect (MCCL_CONNECT_TIMEOUT) was over: has it been stopped?",
          o_.rank, peer));
    } catch (const Error&) {
      return;
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
