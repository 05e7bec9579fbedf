// Makes two ends of an RDMA link in one process, each with its own station, for tests of the code
// between them. The device is simulated or real.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "transport/link_conformance.h"
#include "transport/rdma/link.h"
#include "transport/rdma/pair/pair.h"
#include "transport/rdma/station.h"
#include "transport/rdma/verbs/verbs.h"

namespace mccl::testing {

struct RdmaEnds {
  std::shared_ptr<transport::rdma::Station> stations[2];
  transport::rdma::PairAtStation pairs[2];

  /// Connects two pairs, which have not yet greeted each other. Both names may be of one device.
  static RdmaEnds connect(const std::shared_ptr<transport::rdma::Verbs>& verbs,
                          const std::string& first, const std::string& second,
                          transport::rdma::Service service) {
    namespace rdma = transport::rdma;
    RdmaEnds ends;
    ends.stations[0] = std::make_shared<rdma::Station>(verbs, first, 1);
    ends.stations[1] = std::make_shared<rdma::Station>(verbs, second, 1);
    const auto here = ends.stations[0]->gids();
    const auto there = ends.stations[1]->gids();
    const auto gids = rdma::choose_gids(here, there);
    if (!gids) throw Error("no addresses that fit");
    ends.pairs[0] = ends.stations[0]->make_pair(service, {WorldRank(1), {}});
    ends.pairs[1] = ends.stations[1]->make_pair(service, {WorldRank(0), {}});
    // The dialing end is connected last because it sends first.
    ends.join(1, there[gids->second].index, here[gids->first].bytes);
    ends.join(0, here[gids->first].index, there[gids->second].bytes);
    return ends;
  }

  /// Polls until both pairs are open, or one has ended. Throws Error after 5 s.
  void greet() {
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(5);
    const auto done = [](const transport::rdma::Pair& pair) {
      return (pair.is_open() && pair.in_flight() == 0) || !pair.ended().empty();
    };
    while (!done(*pairs[0]) || !done(*pairs[1])) {
      if (Clock::now() >= limit) throw Error("the two ends never hear of each other");
      for (const auto& pair : pairs) pair->poll();
    }
  }

  std::unique_ptr<transport::rdma::RdmaLink> link(std::size_t end) {
    return std::make_unique<transport::rdma::RdmaLink>(stations[end], std::move(pairs[end]),
                                                       "between two ends of a test");
  }

 private:
  void join(std::size_t end, int own_gid, const transport::rdma::GidBytes& gid) {
    const transport::rdma::Pair& far = *pairs[1 - end];
    pairs[end]->connect({.queue_pair = far.number(),
                         .their_first = far.first_packet(),
                         .our_first = pairs[end]->first_packet(),
                         .mtu_bytes = stations[end]->port().mtu_bytes,
                         .lid = stations[1 - end]->port().lid,
                         .by_gid = true,
                         .own_gid = own_gid,
                         .gid = gid},
                        {.token = far.token(), .shape = {}}, end == 0);
  }
};

/// Waits on the channel of a station.
class WaitingAtStation final : public transport::Waiter {
 public:
  explicit WaitingAtStation(std::shared_ptr<transport::rdma::Station> station)
      : station_(std::move(station)) {}
  void prepare() override {
    station_->look(Clock::now());
    station_->arm();
  }
  void cancel() override { station_->disarm(); }
  bool wait(const transport::Link&, short, int timeout_ms) override {
    std::vector<pollfd> watched;
    station_->watch(watched);
    const bool woken = ::poll(watched.data(), watched.size(), timeout_ms) > 0;
    station_->disarm();
    return woken;
  }

 private:
  const std::shared_ptr<transport::rdma::Station> station_;
};

/// Makes a factory of links from `connect`, which makes the ends for one test.
inline transport::LinkFactory rdma_links(std::string name, std::function<RdmaEnds()> connect) {
  const auto current = std::make_shared<RdmaEnds>();
  return {
      std::move(name),
      [current, connect] {
        *current = connect();
        current->greet();
        auto first = current->link(0);
        return transport::LinkPair(std::move(first), current->link(1));
      },
      [current](int end) { return std::make_unique<WaitingAtStation>(current->stations[end]); }};
}

}  // namespace mccl::testing
