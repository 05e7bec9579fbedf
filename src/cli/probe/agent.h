// Executes the requests of `mccl doctor` and `mccl config` on this host.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "cli/probe/calls.h"
#include "cli/probe/listeners.h"
#include "cli/probe/packets.h"
#include "cli/probe/secret.h"

namespace mccl::cli::probe {

/// Version of the requests and answers. Incremented whenever one of them changes its meaning.
inline constexpr int kProtocol = 2;

class Agent {
 public:
  /// If `as_macos` is true, the facts of this host are taken from the programs of macOS.
  explicit Agent(bool as_macos) : as_macos_(as_macos) {}
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Executes a request. Requests that try a connection are answered later, in any order. Throws
  /// InvalidArgument for a request that it cannot understand.
  void obey(const nlohmann::json& request);

 private:
  struct Target;

  /// Throws InvalidArgument if "listen" has not provided the key yet.
  const Secret& secret() const;
  /// Writes an answer as one line of standard output. Thread-safe: lines are never mixed.
  void say(const nlohmann::json& answer);
  void start(std::function<void()> body);
  /// Runs a test of a connection on a thread of its own, and says its answer as `kind`.
  void test(const char* kind, const nlohmann::json& request,
            std::function<nlohmann::json(const Target&)> run);
  void tell(const nlohmann::json& request);
  void listen(const nlohmann::json& request);
  void call(const nlohmann::json& request);
  void dial(const nlohmann::json& request);
  void packet(const nlohmann::json& request);
  void time(const nlohmann::json& request);

  const bool as_macos_;
  std::mutex mutex_;  ///< Held while an answer is written.
  std::optional<Secret> secret_;
  std::optional<Listeners> listeners_;
  std::optional<PacketEcho> echo_;
  std::optional<Calls> calls_;
  std::vector<std::thread> threads_;
};

}  // namespace mccl::cli::probe
