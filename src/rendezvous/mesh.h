// Connections between the processes of a job. A process has one listener. Both sides of every
// connection prove themselves before the caller gets it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/binding.h"
#include "rendezvous/endpoint.h"
#include "transport/link.h"
#include "transport/link_key.h"

namespace mccl::rendezvous {

class Wiring;

/// A peer whose connections used a cable that has been cut.
struct CutOff {
  int peer = -1;
  std::string why;  ///< Describes the cable and its fault.
};

/// Result of a dial or of an accepted connection: `link` on success, else `reason`. Failures are
/// reported for dials, and for proven peers whose settings differ. Connections of outsiders are
/// refused and counted, but cause no event.
struct MeshEvent {
  int peer = -1;
  transport::LinkKey key;
  std::unique_ptr<transport::Link> link;
  std::string reason;
};

struct MeshOptions {
  int rank = 0;
  int size = 1;
  Config config;
  std::string job_key;  ///< Key of this run of the job; see Incarnation.
  /// Settings that must be equal on all ranks, as "name=value" lines; see agreement_of().
  std::string agreement;
  Log log;
  std::function<void()> on_refused;  ///< Called for every refused connection.
  Reach reach = Reach::any_host;
  /// Null if all ranks reach each other directly. Otherwise it also provides a listener, for
  /// relayed connections.
  std::shared_ptr<Wiring> wiring = nullptr;
};

/// This process's listener, and its dials to other ranks. Not thread-safe: the engine calls it with
/// the progress lock held. Only the constructor may block (name resolution).
class Mesh {
 public:
  /// Binds the listener. Throws InvalidArgument, with advice, if the port is taken or equals
  /// MASTER_PORT, or if an address or interface does not exist.
  explicit Mesh(MeshOptions options);
  ~Mesh();

  /// The addresses of this rank; the caller must publish them.
  const Endpoint& endpoint() const;

  /// Sets the endpoints of all ranks, including this one's.
  void set_endpoints(std::vector<Endpoint> endpoints);

  /// Number of parallel connections that a pair uses for one purpose: the larger of the two ranks'
  /// numbers of explicitly listed addresses, or 1 if neither lists any. With cables, the number of
  /// cables of the pair, limited to 1..64. Equal on both ranks.
  int rails(int peer) const;

  /// Describes the links to a peer and the interfaces of this rank that they use: "2 links, en0 10
  /// Gbit/s MTU 1500". The interfaces are known once the control connection exists.
  std::string describe(int peer) const;

  /// Describes the paths to a peer that are equally good and the best, judged by what the systems
  /// report: "eth1, to 10.0.0.2". Returns one element if there is no choice, if the pair has
  /// several rails, or with cables.
  std::vector<std::string> equal_ways(int peer) const;
  /// Makes later connections to the peer try path `way`, an index into equal_ways(), first.
  void take_way(int peer, std::size_t way);

  /// Starts to connect to `peer`; a MeshEvent follows at the deadline or before. Tries all
  /// addresses of the peer repeatedly, best route first. A dial to a peer on this host fails early
  /// if all its addresses refuse connections for kRefusedFor, because a live peer always listens.
  void dial(int peer, transport::LinkKey key, Clock::time_point deadline);

  /// Called once all ranks are connected. From this call on, connections are accepted at a limited
  /// rate, and those from the peers' addresses take precedence.
  void everyone_is_here();

  /// The reason why this rank has accepted no connections for a while; empty while it accepts them.
  std::string accepting_trouble() const;

  /// Cancels a dial. No event follows.
  void cancel(int peer, transport::LinkKey key);

  /// Appends the descriptors to poll.
  void watch(std::vector<pollfd>& descriptors) const;
  /// Latest time at which progress() must be called again; Clock::time_point::max() if never.
  Clock::time_point next_deadline() const;

  /// Does all work that is possible without blocking; appends the results.
  void progress(std::vector<MeshEvent>& events);

  /// For each rank that has no direct cable to this rank: the relay through which connections to
  /// that rank go.
  std::map<int, int> relayed() const;
  /// Returns the peers whose connections used a cable that was cut since the last call.
  std::vector<CutOff> take_cut_off();

  /// Called in the child of a fork: closes every descriptor and sends nothing to peers.
  void abandon() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mccl::rendezvous
