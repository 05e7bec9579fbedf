// TCP connections between probes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/probe/protocol.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Socket;

class Stream;

/// Returns the nonce in the greeting of a listening probe; empty for any other line.
std::optional<std::string> nonce_in(std::string_view greeting);

/// The line that a dialing side sends, as far as it has arrived.
struct DialerLine {
  enum class State {
    incomplete,
    invalid,  ///< Malformed, or without a valid proof of the key.
    proved,
  };
  State state = State::incomplete;
  std::string nonce;    ///< The dialing side's nonce.
  std::string purpose;  ///< A purpose that listeners know.
};
/// Parses the bytes with which a dialing side answers the greeting that contained `nonce`.
DialerLine parse_dialer_line(const Secret& secret, std::string_view nonce, std::string_view said);

/// Accepts and answers connections until it is destroyed. The listening side first sends "mccl
/// NONCE". The other side sends "NONCE PURPOSE PROOF" within 5 s, and receives "ok PROOF". Both
/// proofs cover both nonces and the purpose.
///
/// Each address may have kMostOfAddress connections whose other side has not proved that it knows
/// the key, which is as many as a probe dials at the same time. All addresses together may have
/// kMostUnproved. If one more arrives, or no descriptor is left, the oldest is closed. So other
/// programs cannot use up all descriptors.
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
    bool is_over = false;
  };
  /// A connection whose other side has proved that it knows the key.
  struct HeldConnection {
    std::shared_ptr<Stream> stream;
    std::atomic<bool> over = false;
    std::thread thread;
  };

  void run();
  void accept(transport::tcp::Listener& listener);
  /// Reads from the connection. Returns false if the other side has proved that it knows the key,
  /// has sent invalid data or has closed the connection.
  bool hear(Stranger& stranger);
  void converse(Stranger& stranger, const std::string& nonce, const std::string& purpose);
  void hold(Stream& stream, const std::string& nonce, const std::string& purpose) const;

  const Secret& secret_;
  std::vector<transport::tcp::Listener> listeners_;
  std::list<Stranger> strangers_;  ///< Ordered by age, the oldest connection first.
  std::list<HeldConnection> conversations_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// Connects, and makes the other side prove that it knows the key. Returns the reason for a
/// failure, or an empty text.
std::string dial(const Secret& secret, const Address& to, const Address* source);

/// A value that could not be measured is 0.
struct Timed {
  double latency_s = 0;  ///< Latency in one direction: half the median round trip of one byte.
  double bytes_per_s = 0;
};

/// Measures the link to `to`. Sends data for about `seconds`, or less if the link is fast.
Timed time_link(const Secret& secret, const Address& to, const Address* source, double seconds);

}  // namespace mccl::cli::probe
