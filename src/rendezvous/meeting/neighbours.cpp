#include "rendezvous/meeting/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <utility>

#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"

namespace mccl::rendezvous {
namespace {

using node::LocalConnection;
using node::OutOfDescriptors;

constexpr std::uint64_t kNeighbourMagic = 0x6d63636c2d6e6272ULL;
constexpr std::string_view kProofLabel = "mccl neighbour";
constexpr std::byte kSettled{1};

/// Maximum number of ranks dialed at a time, which bounds the descriptors that a rank has open.
constexpr std::size_t kMostDialled = 4;
/// Maximum number of accepted connections whose introduction has not arrived; beyond it, the oldest
/// connection is closed.
constexpr std::size_t kMostStrangers = 64;
/// Maximum number of dials per peer. A dial is repeated if its connection is closed before the
/// answer arrives, as the peer may have done in favour of other connections (kMostStrangers).
constexpr int kMostTries = 5;
/// Pause before a retry if the system has refused to make a connection or to pass descriptors.
constexpr milliseconds kPauseAfterRefusal{10};
constexpr milliseconds kLongestSleep{100};

/// Introduction of a rank, sent together with the descriptors of its arena and of the pipe that
/// wakes it. The proof covers both ranks and the names of both listeners, so it is valid for this
/// pair and direction only.
struct Introduction {
  std::uint64_t magic = kNeighbourMagic;
  std::int32_t rank = -1;
  std::int32_t to = -1;
  Proof proof = {};
};

/// Parses a list of ranks that another rank has sent. Ignores numbers that are not ranks of the
/// job.
std::vector<int> parse_ranks(const std::string& text, int size) {
  std::vector<int> ranks;
  for (const double rank : parse_numbers(text).value_or(std::vector<double>())) {
    if (rank >= 0 && rank < size) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

class NeighbourSearch {
 public:
  explicit NeighbourSearch(const NeighbourOptions& options) : o_(options) {
    if (!o_.listener) return;
    for (int peer = static_cast<int>(o_.names.size()) - 1; peer >= 0; --peer) {
      if (name_of(peer) == kNoMemory || peer == o_.rank) continue;
      if (peer < o_.rank) {
        to_dial_.push_back(peer);
      } else {
        expected_.insert(peer);
      }
    }
  }

  node::Neighbours run() {
    while (!to_dial_.empty() || !dialled_.empty() || !expected_.empty()) {
      if (Clock::now() >= o_.deadline) give_up();
      o_.advance_beside();
      if (Clock::now() >= paused_until_) {
        start_dials();
        answer_again();
      }
      sleep_and_serve();
    }
    return std::move(found_);
  }

 private:
  struct Dialled {
    LocalConnection connection;
    bool introduced = false;
  };
  struct Introduced {
    int rank = -1;
    std::vector<Descriptor> passed;
  };

  const std::string& name_of(int rank) const { return o_.names[static_cast<std::size_t>(rank)]; }
  transport::Link& control_of(int peer) const {
    return *o_.controls[static_cast<std::size_t>(peer)];
  }
  void pause() { paused_until_ = Clock::now() + kPauseAfterRefusal; }

  Proof proof(int from, int to) const {
    const std::string said = fmt::format("{} {} {} {}", from, to, name_of(from), name_of(to));
    return prove(o_.key, kProofLabel, std::as_bytes(std::span(said)));
  }

  /// Sends this rank's introduction. Returns false if the system refuses it for now, so that the
  /// caller must try again later. Also returns true if the peer has closed the connection, because
  /// a read of the answer then reports the error.
  bool introduce(const LocalConnection& connection, int peer) {
    Introduction mine;
    mine.rank = o_.rank;
    mine.to = peer;
    mine.proof = proof(o_.rank, peer);
    const std::array<int, 2> passed = {o_.arena->descriptor(), o_.bell_pipe};
    try {
      if (connection.send(std::as_bytes(std::span(&mine, 1)), passed)) return true;
    } catch (const PeerError&) {
      return true;
    }
    pause();
    return false;
  }

  /// Receives an introduction, which must arrive in one piece. The rank of the result is -1 if the
  /// introduction is invalid.
  Introduced take_introduction(const LocalConnection& connection) const {
    Introduction theirs;
    Introduced introduced;
    introduced.passed =
        connection.receive(std::as_writable_bytes(std::span(&theirs, 1)), Clock::now());
    const bool known = theirs.magic == kNeighbourMagic && theirs.rank >= 0 &&
                       static_cast<std::size_t>(theirs.rank) < o_.names.size() &&
                       theirs.to == o_.rank && introduced.passed.size() == 2 &&
                       same_proof(theirs.proof, proof(theirs.rank, o_.rank));
    if (known) introduced.rank = theirs.rank;
    return introduced;
  }

  /// Adds the introduced rank to found_. Throws Error if the rank's arena cannot be mapped.
  void remember(Introduced introduced, const LocalConnection& connection) {
    node::Neighbour neighbour{node::PeerArena(std::move(introduced.passed[0])),
                              std::move(introduced.passed[1]), connection.process(),
                              connection.process_id()};
    found_.insert_or_assign(WorldRank(introduced.rank), std::move(neighbour));
  }

  void start_dials() {
    for (auto& [peer, dialled] : dialled_) {
      if (!dialled.introduced && !(dialled.introduced = introduce(dialled.connection, peer)))
        return;
    }
    while (!to_dial_.empty() && dialled_.size() < kMostDialled) {
      const int peer = to_dial_.front();
      auto [connection, busy] = LocalConnection::dial(name_of(peer));
      if (busy) return pause();
      to_dial_.pop_front();
      if (!connection || !connection.same_user()) {
        settle(peer);
        continue;
      }
      Dialled& dialled = dialled_[peer] = {std::move(connection), false};
      if (!(dialled.introduced = introduce(dialled.connection, peer))) return;
    }
  }

  void answer_again() {
    while (!unanswered_.empty() &&
           introduce(unanswered_.front().second, unanswered_.front().first)) {
      unanswered_.pop_front();
    }
  }

  /// Serves all descriptors that are ready, the control connections first and the listener last.
  void sleep_and_serve() {
    std::vector<pollfd> entries;
    std::vector<std::function<void()>> serve;  // In the order of `entries`.
    const auto watch = [&](int descriptor, std::function<void()> when_ready) {
      entries.push_back({descriptor, POLLIN, 0});
      serve.push_back(std::move(when_ready));
    };
    watch(o_.listener->descriptor(), [this] { admit(o_.listener->accept(o_.deadline)); });
    for (std::size_t i = 0; i < unknown_.size(); ++i)
      watch(unknown_[i].descriptor(), [this, i] { hear(i); });
    for (const auto& [peer, each] : dialled_)
      watch(each.connection.descriptor(), [this, peer = peer] { complete(peer); });
    for (const int peer : expected_)
      watch(control_of(peer).descriptor(), [this, peer] { hear_settled(peer); });
    o_.watch_beside(entries);
    const Clock::time_point now = Clock::now();
    const Clock::time_point until =
        std::min(o_.deadline, now < paused_until_ ? paused_until_ : now + kLongestSleep);
    if (::poll(entries.data(), entries.size(), milliseconds_until(until)) <= 0) return;
    // Backwards, because hear() removes an element of unknown_.
    for (std::size_t i = serve.size(); i-- > 0;)
      if (entries[i].revents != 0) serve[i]();
  }

  void admit(LocalConnection connection) {
    if (!connection.same_user()) return;
    unknown_.push_back(std::move(connection));
    if (unknown_.size() > kMostStrangers) unknown_.pop_front();
  }

  void hear(std::size_t index) {
    LocalConnection connection = std::move(unknown_[index]);
    unknown_.erase(unknown_.begin() + static_cast<std::ptrdiff_t>(index));
    try {
      Introduced introduced = take_introduction(connection);
      const int peer = introduced.rank;
      if (expected_.count(peer) == 0 || found_.count(WorldRank(peer)) != 0) return;
      remember(std::move(introduced), connection);
      if (!introduce(connection, peer)) unanswered_.emplace_back(peer, std::move(connection));
    } catch (const OutOfDescriptors&) {
      throw;
    } catch (const Error&) {
      // The introduction did not arrive completely, or this process cannot map the rank's memory.
      return;
    }
  }

  void complete(int peer) {
    const auto dialled = dialled_.find(peer);
    try {
      Introduced introduced = take_introduction(dialled->second.connection);
      if (introduced.rank == peer) remember(std::move(introduced), dialled->second.connection);
    } catch (const OutOfDescriptors&) {
      throw;
    } catch (const PeerError&) {
      // The peer could not map this rank's memory, or it closed the connection before it read the
      // introduction.
      if (++tries_[peer] < kMostTries) {
        dialled_.erase(dialled);
        to_dial_.push_back(peer);
        return;
      }
    } catch (const Error&) {
      // The answer did not arrive completely, or this process cannot map the peer's memory.
    }
    dialled_.erase(dialled);
    settle(peer);
  }

  void settle(int peer) const {
    if (control_of(peer).write(std::span(&kSettled, 1)) == 1) return;
    throw PeerError(
        fmt::format("rank {} cannot report to rank {} that their set-up of shared memory has "
                    "ended: the control connection ({}) accepts no data",
                    o_.rank, peer, control_of(peer).description()));
  }

  void hear_settled(int peer) {
    transport::Link& control = control_of(peer);
    try {
      if (control.peek(1).empty()) return;
    } catch (const transport::LinkClosed& closed) {
      throw PeerError(fmt::format(
          "rank {} died while the ranks connected ({}); see its last output", peer, closed.what()));
    }
    control.consume(1);
    expected_.erase(peer);
  }

  [[noreturn]] void give_up() const {
    std::vector<int> ranks;
    for (const auto& [peer, each] : dialled_) ranks.push_back(peer);
    ranks.insert(ranks.end(), expected_.begin(), expected_.end());
    throw TimeoutError(
        fmt::format("rank {} timed out (MCCL_CONNECT_TIMEOUT) waiting to set up shared memory with "
                    "these ranks of this host: {}; are they stopped?",
                    o_.rank, fmt::join(ranks, ", ")));
  }

  const NeighbourOptions& o_;
  /// Lower ranks that have yet to be dialed, in descending order, so that not all ranks begin with
  /// the same rank.
  std::deque<int> to_dial_;
  std::map<int, Dialled> dialled_;
  std::map<int, int> tries_;  ///< Number of dials that ended without an answer, by rank.
  std::set<int> expected_;    ///< Higher ranks whose byte kSettled has not arrived.
  std::deque<LocalConnection> unknown_;
  std::deque<std::pair<int, LocalConnection>> unanswered_;
  Clock::time_point paused_until_ = Clock::time_point::min();
  node::Neighbours found_;
};

/// True if the list of node numbers is empty, or if each number first appears after all smaller
/// ones and at least two ranks have the same number.
bool numbered_in_order(const std::vector<int>& nodes) {
  int known = 0;
  for (const int node : nodes) {
    if (node > known) return false;
    known = std::max(known, node + 1);
  }
  return nodes.empty() || static_cast<std::size_t>(known) < nodes.size();
}

}  // namespace

std::vector<int> nodes_from(const std::vector<std::vector<int>>& mapped) {
  const std::size_t size = mapped.size();
  std::vector<std::vector<bool>> says(size, std::vector<bool>(size, false));
  for (std::size_t a = 0; a < size; ++a) {
    for (const int b : mapped[a]) says[a][static_cast<std::size_t>(b)] = true;
  }
  std::vector<int> nodes(size, -1);
  int next = 0;
  for (std::size_t first = 0; first < size; ++first) {
    if (nodes[first] >= 0) continue;
    std::vector<std::size_t> members{first};
    for (std::size_t other = first + 1; other < size; ++other) {
      const bool fits = nodes[other] < 0 && std::ranges::all_of(members, [&](std::size_t member) {
                          return says[member][other] && says[other][member];
                        });
      if (fits) members.push_back(other);
    }
    for (const std::size_t member : members) nodes[member] = next;
    ++next;
  }
  if (static_cast<std::size_t>(next) == size) nodes.clear();  // No two ranks share a node.
  return nodes;
}

node::Neighbours find_neighbours(const NeighbourOptions& options) {
  return NeighbourSearch(options).run();
}

node::SharedMemory agree_on_nodes(const Exchange& exchange, int rank, int size,
                                  node::Neighbours found) {
  std::vector<int> mine;
  for (const auto& [peer, neighbour] : found) mine.push_back(peer.number());
  const auto decide = [size](const std::vector<std::string>& cards) {
    std::vector<std::vector<int>> mapped;
    mapped.reserve(cards.size());
    for (const std::string& card : cards) mapped.push_back(parse_ranks(card, size));
    return fmt::format("{}", fmt::join(nodes_from(mapped), " "));
  };
  node::SharedMemory agreed;
  const std::string card = fmt::format("{}", fmt::join(mine, " "));
  agreed.nodes = parse_ranks(exchange.decide("neighbours", card, decide), size);
  if (!agreed.nodes.empty() && agreed.nodes.size() != static_cast<std::size_t>(size)) {
    throw CorruptionError(
        fmt::format("rank 0 assigned node numbers to {} of {} ranks", agreed.nodes.size(), size));
  }
  if (!numbered_in_order(agreed.nodes)) {
    throw CorruptionError(
        "rank 0 assigned invalid node numbers: nodes must be numbered from 0, in the order of "
        "their "
        "lowest ranks, and some ranks must share a node");
  }
  std::erase_if(found, [&](const auto& entry) {
    return agreed.nodes.empty() ||
           agreed.nodes[entry.first.index()] != agreed.nodes[static_cast<std::size_t>(rank)];
  });
  agreed.neighbours = std::move(found);
  return agreed;
}

void warn_of_missing_neighbours(const node::SharedMemory& found, int rank,
                                const std::vector<Endpoint>& endpoints, const Log& log) {
  const std::string& host = endpoints[static_cast<std::size_t>(rank)].host;
  std::vector<int> missing;
  for (const Endpoint& other : endpoints) {
    if (other.rank != rank && other.host == host &&
        !found.neighbours.contains(WorldRank(other.rank))) {
      missing.push_back(other.rank);
    }
  }
  if (missing.empty()) return;
  log.warn(
      "this rank shares no memory with these ranks of the same host: {} (another container or "
      "user, or no memory left). It reaches them through another transport",
      fmt::join(missing, ", "));
}

}  // namespace mccl::rendezvous
