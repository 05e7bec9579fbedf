// Connections between the processes of a job. A process has one listener, and every connection is
// proven at both ends before the caller gets it.
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

/// A peer that was reached along a cable that has been cut.
struct CutOff {
  int peer = -1;
  std::string why;  ///< Names the cable and its fault.
};

/// Result of a dial or of an accepted connection: `link` on success, else `reason`. Failures are
/// reported for dials, and for proven peers whose settings differ. Refused outsiders are only
/// counted.
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
  std::string job_key;  ///< Key of this start of the job; see Incarnation.
  /// Settings that must agree, "name=value" lines (agreement_of).
  std::string agreement;
  Log log;
  std::function<void()> on_refused;  ///< Called for every refused connection.
  Reach reach = Reach::any_host;
  /// Null if all ranks reach each other directly. It also provides this rank's listener.
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

  /// Number of parallel connections that a pair uses for one purpose: the larger number of
  /// explicitly listed addresses of the two, or 1 if neither lists any. With cables, the number of
  /// cables of the pair, limited to 1..64. Equal at both ends.
  int rails(int peer) const;

  /// Describes the interfaces that the links of a pair use at this end, once its control connection
  /// exists: "2 links, en0 10 Gbit/s MTU 1500".
  std::string describe(int peer) const;

  /// Describes the paths to a peer that rank first by all that the systems report: "eth1, to
  /// 10.0.0.2". Returns one element if there is no choice, if there are several rails, or with
  /// cables.
  std::vector<std::string> equal_ways(int peer) const;
  /// Makes later connections to the peer try path number `way` of equal_ways() first.
  void take_way(int peer, std::size_t way);

  /// Starts to connect to `peer`; a MeshEvent follows at the deadline or before. Tries all
  /// addresses of the peer repeatedly, best route first. A peer on this host listens for its whole
  /// lifetime, so its dial fails early if all its addresses refuse connections for kRefusedFor.
  void dial(int peer, transport::LinkKey key, Clock::time_point deadline);

  /// Called when all ranks have met. From now on connections are accepted at a limited rate, and
  /// those from the peers' addresses have precedence.
  void everyone_is_here();

  /// The reason why this rank has accepted no connections for a while; empty while it accepts them.
  std::string accepting_trouble() const;

  /// Ends a dial without an event.
  void cancel(int peer, transport::LinkKey key);

  /// Appends the descriptors to watch.
  void watch(std::vector<pollfd>& descriptors) const;
  /// Latest time at which progress() must be called again; Clock::time_point::max() if never.
  Clock::time_point next_deadline() const;

  /// Does all work that is possible without blocking; appends the results.
  void progress(std::vector<MeshEvent>& events);

  /// Ranks without a direct cable to this rank, each with the relay that connections to it go
  /// through.
  std::map<int, int> relayed() const;
  /// Returns the peers cut off by cut cables since the last call.
  std::vector<CutOff> take_cut_off();

  /// Called in the child of a fork: closes every descriptor and sends nothing to peers.
  void abandon() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mccl::rendezvous
