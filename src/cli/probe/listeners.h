// The side of a probe that is connected to.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cli/probe/stream.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::probe {

/// Answers whoever knows the key, on the ports that a job will use, each the first free one from
/// its number on: a firewall in the way is met now. Until it is destroyed.
class Listeners {
 public:
  Listeners(std::string key, const std::vector<std::uint16_t>& ports);
  ~Listeners();
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  const std::vector<std::uint16_t>& ports() const { return ports_; }

 private:
  void run();
  void answer(Stream stream) const;

  const std::string key_;
  std::vector<transport::tcp::Listener> listeners_;
  std::vector<std::uint16_t> ports_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// What a connection is for, told in its first line behind the key.
inline constexpr const char* kHello = "hello";  ///< Is answered.
inline constexpr const char* kEcho = "echo";    ///< Each byte comes back.
inline constexpr const char* kCount = "count";  ///< All are swallowed, and their number comes back.

}  // namespace mccl::cli::probe
