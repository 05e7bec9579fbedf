// The HTTP server from which Prometheus and similar programs read the metrics of a rank. It answers
// one request for each connection. It replaces prometheus-cpp's own server, which does not offer
// OpenMetrics, takes up to two seconds to stop, and cannot close its socket in the child of a fork.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/wake_pipe.h"
#include "engine/metrics_page.h"
#include "engine/metrics_request.h"
#include "transport/tcp/listener.h"

namespace mccl::engine {

/// Serves /metrics on a thread of its own, which sleeps until a client connects.
class MetricsServer {
 public:
  /// Returns the values to serve, or nothing if this rank cannot read them now. Called on the
  /// server's thread.
  using Read = std::function<std::optional<RankFigures>()>;

  /// Listens at the IP address and port. Throws Error, with advice in its message, if it cannot
  /// listen.
  MetricsServer(const std::string& address, int port, Read read);
  /// Ends the thread. Waits until a running `read` has returned, and closes the connection of a
  /// client that is being served.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// Called in the child of a fork: closes the child's descriptors.
  void abandon() noexcept;

 private:
  void run();
  void answer(const transport::tcp::Socket& client);
  bool wait(const transport::tcp::Socket& client, short events, Clock::time_point deadline);
  std::string response_to(const MetricsRequest& request);

  const Read read_;
  MetricsPage page_;
  transport::tcp::Listener listener_;
  WakePipe wake_pipe_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace mccl::engine
