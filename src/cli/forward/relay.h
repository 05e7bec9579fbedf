// A port of this host that forwards to a local socket, for processes of this user only.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/kit/pipe.h"
#include "cli/launch/watch.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::forward {

/// Returns the first address where a host answers a connection to the port, even by refusing it.
/// Empty if none answers within `patience`.
std::string first_that_answers(const std::vector<std::string>& addresses, std::uint16_t port,
                               std::chrono::milliseconds patience);

/// Listens on 127.0.0.1 and forwards each connection to the socket. The server behind the socket
/// may not listen yet. If the onward connection closes before the first answer, the relay connects
/// again and repeats everything that the client has sent.
class Relay {
 public:
  /// Listens at `wanted`, or at any free port if that is taken. Throws Error.
  Relay(std::uint16_t wanted, std::string socket);

  std::uint16_t port() const { return listener_.address().port(); }
  /// Relays until standard input ends.
  void run();

 private:
  struct Pair {
    transport::tcp::Socket client;
    Descriptor onward;
    std::string to_client;
    std::string to_onward;
    std::string unanswered;  ///< Everything that the client has sent before the first answer.
    bool answered = false;
    bool over = false;
    Clock::time_point retry_at = {};
  };

  void watch(launch::Watch& watch, Pair& pair);
  void accept();
  void lead_on(Pair& pair);
  void read_client(Pair& pair);
  void read_onward(Pair& pair);

  const std::string socket_;
  transport::tcp::Listener listener_;
  std::list<Pair> pairs_;
};

}  // namespace mccl::cli::forward
