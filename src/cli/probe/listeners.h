// The listening side of a probe.
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
#include "cli/probe/stream.h"
#include "transport/tcp/listener.h"

namespace mccl::cli::probe {

/// The probe listens at a port of each range, so that firewalls that admit a job also admit it.
/// MCCL's ranks use ports from 29600 on, and `mccl launch` from 32321 on. The probe's ranges are at
/// the end of these, so that the probe takes no port that a job needs.
inline constexpr std::array<std::pair<std::uint16_t, std::uint16_t>, 2> kPortRanges = {
    {{29680, 29700}, {32380, 32400}}};

/// Answers connections until it is destroyed. The listener begins with "mccl NONCE". The other side
/// sends "NONCE PURPOSE PROOF" within some seconds, and receives "ok PROOF". Both proofs cover both
/// nonces and the purpose.
///
/// Other programs cannot block it, because connections that have not proved the key are limited.
/// Each address may have kMostOfAddress of them, which is as many as a probe dials at the same
/// time. All addresses together may have kMostUnproved. If one more arrives, or no descriptor is
/// left, the oldest is closed.
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
  /// A connection whose other side has not proved yet that it knows the key.
  struct Stranger {
    Socket socket;
    std::string address;
    std::string nonce;
    std::string said;
    Clock::time_point limit;
  };
  /// A connection whose other side has proved that it knows the key.
  struct Conversation {
    std::unique_ptr<Stream> stream;
    std::atomic<bool> over = false;
    std::thread thread;
  };

  void run();
  void accept(transport::tcp::Listener& listener);
  /// Reads from the connection. Returns false once it must be removed from `strangers_`, whether or
  /// not it has proved the key.
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
