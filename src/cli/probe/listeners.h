// The side of a probe that is connected to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/probe/secret.h"
#include "cli/probe/stream.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::probe {

/// A port of each range is listened at: firewalls that let a job in let these in. They are the last
/// of the ports that MCCL's ranks and `mccl launch` take, from 29600 and 32321 on, so that no job
/// finds its own taken.
inline constexpr std::array<std::pair<std::uint16_t, std::uint16_t>, 2> kPortRanges = {
    {{29680, 29700}, {32380, 32400}}};

/// What a connection is for.
inline constexpr const char* kHello = "hello";  ///< Is answered.
inline constexpr const char* kEcho = "echo";    ///< Each byte comes back.
inline constexpr const char* kCount = "count";  ///< All are swallowed, and their number comes back.

/// The first word of a probe to whoever connects.
inline constexpr const char* kGreeting = "mccl ";

/// Answers connections until it is destroyed. The listener begins: "mccl NONCE". The other side
/// says "NONCE PURPOSE PROOF" within some seconds, and gets "ok PROOF". Both proofs are over both
/// nonces and the purpose.
///
/// Strangers cannot make it deaf: an address has room for kMostOfAddress connections that have
/// proved nothing, which is as many as a probe dials at once, and all addresses for kMostUnproved.
/// Where one more comes, or no descriptor is left, the oldest of them leaves.
class Listeners {
 public:
  static constexpr std::size_t kMostOfAddress = 512;
  static constexpr std::size_t kMostUnproved = 1024;

  Listeners(const Secret& secret, std::vector<transport::tcp::Listener> listeners);
  ~Listeners();
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  std::vector<std::uint16_t> ports() const;

 private:
  /// A connection that has proved nothing yet.
  struct Stranger {
    Socket socket;
    std::string address;
    std::string nonce;
    std::string said;
    Clock::time_point limit;
  };
  /// A connection whose other end knows the key.
  struct Conversation {
    std::unique_ptr<Stream> stream;
    std::atomic<bool> over = false;
    std::thread thread;
  };

  void run();
  void accept(transport::tcp::Listener& listener);
  /// False when the stranger is done with, for good or bad.
  bool hear(Stranger& stranger);
  void converse(Stranger& stranger, const std::string& nonce, const std::string& purpose);
  void hold(Stream& stream, const std::string& nonce, const std::string& purpose) const;
  void forget_ended();

  const Secret& secret_;
  std::vector<transport::tcp::Listener> listeners_;
  std::list<Stranger> strangers_;  ///< The oldest first.
  std::list<Conversation> conversations_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace mccl::cli::probe
