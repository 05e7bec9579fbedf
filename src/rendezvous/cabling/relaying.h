// What this rank passes on between others: connections that came here for another rank. Each is led
// one step further along the way that all ranks know.
#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/dialing.h"
#include "transport/tcp/splice.h"

namespace mccl::rendezvous {

/// Not thread-safe. No call blocks.
class Relaying {
 public:
  /// `congestion_control`: of what is passed on. `patience`: how long a rank may take to receive
  /// what another one has written that has gone.
  Relaying(std::string congestion_control, Clock::duration patience, Log log)
      : congestion_control_(std::move(congestion_control)),
        patience_(patience),
        log_(std::move(log)) {}

  /// Between `from`, whose socket it is, and `to`, the way to which begins with `onwards`.
  void pass_on(int from, int to, transport::tcp::Socket socket, DialRequest onwards);
  void advance(Clock::time_point now);
  void watch(std::vector<pollfd>& descriptors) const;
  Clock::time_point next_deadline() const;

  void close() noexcept { passages_.clear(); }
  /// Closes what goes along a cable that is gone.
  void drop(const Cable& cable);

  /// The ranks whose connections pass through here. Connections whose way on does not stand yet do
  /// not count.
  std::set<int> users() const;

 private:
  struct Passage {
    int from;
    int to;
    transport::tcp::Socket waiting;  ///< Until the way on stands; then:
    Dial onwards;
    std::optional<transport::tcp::Splice> splice;
  };

  bool advance(Passage& passage, Clock::time_point now);

  const std::string congestion_control_;
  const Clock::duration patience_;
  Log log_;
  std::list<Passage> passages_;
};

}  // namespace mccl::rendezvous
