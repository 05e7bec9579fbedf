// The part of Engine that serves its metrics to Prometheus.
#include <algorithm>

#include "engine/engine.h"

namespace mccl::engine {

std::string_view Engine::state_of(WorldRank peer) const {
  if (peers_.has_left(peer)) return "left";
  // If no reason is recorded, this rank has closed the connection itself, to leave the job.
  if (!peers_.connected(peer)) return peers_.lost(peer).empty() ? "left" : "lost";
  return heart_.has_fallen_silent(peer) ? "silent" : "connected";
}

std::optional<RankFigures> Engine::figures() {
  RankFigures figures;
  figures.origin = recorder_->origin();
  figures.summary = options_.metrics->summary();
  for (std::size_t i = 0; i < EndedCalls::kMostAlgorithms; ++i)
    figures.algorithms.push_back(recorder_->algorithm_at(i));
  for (const std::string_view state : {"connected", "silent", "left", "lost"})
    figures.peers[state] = 0;
  const WayGuard way(driver_, Clock::now() + kForTheDriver);
  if (!way) return std::nullopt;
  figures.calls = completions_.ended_calls();
  figures.links = links_.bytes();
  for (WorldRank peer(0); peer.number() < size(); ++peer)
    if (peer.number() != rank()) ++figures.peers[state_of(peer)];
  const Clock::time_point now = Clock::now();
  groups_.for_each([&](const GroupState& group) {
    const GroupState::Status status = group.status(now, heart_);
    figures.pending_calls += status.pending.size() + status.more_pending;
    for (const GroupState::Status::Pending& call : status.pending)
      figures.longest_wait_s = std::max(figures.longest_wait_s, call.waited_s);
    if (!status.failure.empty()) ++figures.failed_groups;
  });
  return figures;
}

/// If the server cannot be started, for example because the port is in use, logs a warning and goes
/// on without the server.
void Engine::start_metrics_server() {
  const Config& config = options_.config;
  if (config.metrics_port == 0) return;
  const int port = config.metrics_port + rank();
  const std::string address = config.metrics_addr.empty() ? "127.0.0.1" : config.metrics_addr;
  try {
    metrics_server_.emplace(address, port, [this] { return figures(); });
    log_.info("this rank serves its metrics at port {} of {}", port, address);
  } catch (const transport::tcp::BindError& error) {
    log_.warn(
        "this rank serves no metrics: {}; check MCCL_METRICS_ADDR, or choose another "
        "MCCL_METRICS_PORT (rank {} listens on that port plus {})",
        error.what(), rank(), rank());
  } catch (const std::exception& error) {
    log_.warn("this rank serves no metrics at port {}: {}", port, error.what());
  }
}

}  // namespace mccl::engine
