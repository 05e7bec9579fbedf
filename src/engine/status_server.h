// Reports the state of a rank to other processes of the same user: `mccl dump` and `mccl status`
// send requests through a local socket. Also writes the flight record to a file when a group fails
// or a signal arrives. The socket is a file in node::status_folder(). The client sends one of the
// requests of node/local_socket.h. The rank answers with JSON and closes the connection.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/wake_pipe.h"
#include "mccl/config.h"
#include "node/local_socket.h"

namespace mccl::engine {

/// Owns one thread, which sleeps until a request, a signal or write_record() wakes it.
class StatusServer {
 public:
  /// Functions that return the answers to requests, as JSON. Called on the server's thread. If the
  /// function for a request is unset, the client receives an error.
  struct Sources {
    std::function<std::string()> status = {};  ///< The status of this rank.
    std::function<std::string()> others = {};  ///< The statuses of the other ranks.
  };

  /// If the socket or the thread cannot be created, for example because node::status_folder()
  /// belongs to another user, logs the reason and goes on without the socket or thread. `recorder`
  /// and `log` must outlive this object.
  StatusServer(const Config& config, const FlightRecorder& recorder, const Log& log,
               Sources sources);
  /// Ends the thread, after it has written a record that write_record() requested.
  ~StatusServer() { stop(); }
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// Makes the server's thread write the flight record to the file that the setting
  /// flight_recorder_file names. No-op if that setting is empty. Called from any thread.
  void write_record() noexcept;
  void stop() noexcept;
  /// Called in the child of a fork: closes the child's descriptors.
  void abandon() noexcept;

 private:
  void listen();
  void run();
  void answer();
  void write_file(std::string_view reason);

  const std::string setting_;
  const FlightRecorder& recorder_;
  const Log& log_;
  const Sources sources_;
  std::optional<node::LocalListener> listener_;
  WakePipe wake_pipe_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> signalled_{false};
  std::shared_ptr<void> by_signal_;  ///< Handles the signal; null if no signal is handled.
  std::thread thread_;
};

}  // namespace mccl::engine
