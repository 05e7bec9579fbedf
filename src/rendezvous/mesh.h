// Connections between the processes of a job. A process has one listener, and every connection is
// proven at both ends before the caller sees it.
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

/// A peer that was reached along a cable that is cut.
struct CutOff {
  int peer = -1;
  std::string why;  ///< Which cable, and what is wrong with it.
};

/// A dial or an accepted connection that ended well (`link` set) or not (`reason` set; only dials
/// and proven peers whose settings differ are reported so; strangers are only counted).
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
  std::string job_key;  ///< Should be a key of this start of the job: see Incarnation.
  /// Settings that must agree, "name=value" lines (agreement_of).
  std::string agreement;
  Log log;
  std::function<void()> on_refused;  ///< Called for every refused connection.
  Reach reach = Reach::any_host;
  /// Null where all ranks reach each other. It also provides this rank's listener.
  std::shared_ptr<Wiring> wiring = nullptr;
};

/// Not thread-safe: the engine calls it under its progress lock. No call blocks but the constructor
/// (name resolution).
class Mesh {
 public:
  /// Binds the listener. Throws InvalidArgument when the port is taken or equals MASTER_PORT, an
  /// address or interface does not exist: with what to set.
  explicit Mesh(MeshOptions options);
  ~Mesh();

  /// Where this rank can be reached; publish it.
  const Endpoint& endpoint() const;

  /// The endpoints of all ranks, this one's included.
  void set_endpoints(std::vector<Endpoint> endpoints);

  /// How many parallel connections a pair uses for one purpose: the larger number of explicitly
  /// listed addresses of the two; 1 when none is listed. Equal on both sides.
  int rails(int peer) const;

  /// What the links of a pair go through at this end, once its control connection stands: "2 links,
  /// en0 10 Gbit/s MTU 1500".
  std::string describe(int peer) const;

  /// The ways to a peer that are as good as the best by all that the systems say, the best
  /// included: "eth1, to 10.0.0.2". One where there is no choice, where rails go their own ways,
  /// and along cables.
  std::vector<std::string> equal_ways(int peer) const;
  /// From now on connections to the peer try this one of equal_ways first.
  void take_way(int peer, std::size_t way);

  /// Starts to connect to `peer`; a MeshEvent follows before or at the deadline. Tries all of the
  /// peer's addresses, best route first, and again and again. A peer of this host listens for as
  /// long as it lives, so there it is given up when all of them refuse for a moment.
  void dial(int peer, transport::LinkKey key, Clock::time_point deadline);

  /// All ranks have met: from now on connections are accepted at a limited rate, and those from
  /// the peers' addresses have precedence.
  void everyone_is_here();

  /// Why this rank has accepted no connections for a while; empty when it accepts them.
  std::string accepting_trouble() const;

  /// Ends a dial without an event.
  void cancel(int peer, transport::LinkKey key);

  /// Adds the descriptors to watch.
  void watch(std::vector<pollfd>& descriptors) const;
  /// When progress() must be called again at the latest; Clock::time_point::max() for never.
  Clock::time_point next_deadline() const;

  /// Does what can be done now; appends what ended.
  void progress(std::vector<MeshEvent>& events);

  /// The ranks that no cable leads to from here, with the one that connections to each go through.
  std::map<int, int> relayed() const;
  /// The peers that cut cables have cut off since it was asked last.
  std::vector<CutOff> take_cut_off();

  /// Closes every descriptor and tells the peers nothing (the child of a fork).
  void abandon() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mccl::rendezvous
