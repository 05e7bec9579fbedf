// Single UDP packets between probes: tests of the sizes that arrive, and discovery messages
// ("calls") through cables. Calls find the host at the other end of each cable before any cable has
// an address.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/probe/secret.h"
#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Address;
using transport::tcp::Socket;

/// A packet that was received.
struct Packet {
  std::string head;  ///< The packet's first line, at most 400 bytes.
  Address from;
  unsigned interface = 0;  ///< Index of the receiving interface; 0: unknown.
  bool to_all = false;     ///< True if the packet was sent to all hosts of the network (multicast).
};

/// Answers packets until it is destroyed. A single packet that proves knowledge of the key gets a
/// smaller packet as its answer. Calls are answered as described below.
///
/// Sends calls through this host's interfaces, and receives other hosts' calls. A call is a
/// handshake of three messages, each with a proof that the sender knows the secret:
///   call NONCE NAME INTERFACE    sent by multicast; NONCE is new, NAME and INTERFACE the caller's
///   who NONCE NONCE-2            the receiver's challenge to the caller; NONCE-2 is new
///   here NONCE-2 NAME INTERFACE  the caller's response, through the interface of its call
/// The receiver reports "heard" once a valid "here" has arrived. A replayed "call" is never
/// reported as heard, because its sender cannot make the proof of "here". The receiver sends "who"
/// to the caller's address first, and then by multicast while no "here" arrives. If none arrives at
/// all, it reports the call as "unanswered".
class MulticastProbe {
 public:
  /// Receives each answer. Called on a thread of this object.
  using Say = std::function<void(const nlohmann::json& answer)>;

  MulticastProbe(const Secret& secret, Say say);
  ~MulticastProbe();
  MulticastProbe(const MulticastProbe&) = delete;
  MulticastProbe& operator=(const MulticastProbe&) = delete;

  /// True if this host can receive calls: the system has provided a socket at kCallPort.
  bool hears() const { return static_cast<bool>(socket_); }
  /// Port at which single packets are answered; 0 if the system provides no socket.
  std::uint16_t packet_port() const {
    return packets_ ? packets_.local().port() : std::uint16_t{0};
  }
  /// Sends a call through every interface that is up and has a link-local address. Blocks for up to
  /// 2.5 s if interfaces have just come up.
  void call(const std::string& name);

 private:
  /// The two ends of a call.
  struct Place {
    unsigned interface = 0;  ///< Index of the local interface.
    std::string name;        ///< The caller's name.
    std::string from;        ///< The caller's name for its own interface.
  };
  /// A "who" message that has been sent and whose "here" has not arrived.
  struct Challenge {
    Place place;
    std::string text;
    Clock::time_point again;
    int asked = 1;
  };

  void run();
  void answer(const Packet& packet);
  void take(const Packet& packet);
  void take_call(const Packet& packet, std::span<const std::string_view> words);
  void take_question(const Packet& packet, std::span<const std::string_view> words);
  void take_answer(const Packet& packet, std::span<const std::string_view> words);
  /// Returns the call that this host sent with this nonce, if any.
  std::optional<Place> called(std::string_view nonce);
  void report(const char* what, const Place& place);
  void ask_again();

  const Secret& secret_;
  const Say say_;
  Socket socket_;
  Socket packets_;
  std::mutex mutex_;
  /// Calls sent by this host, keyed by NONCE. Guarded by mutex_.
  std::map<std::string, Place> called_;
  std::map<std::string, Challenge> questions_;  ///< Keyed by NONCE-2; used by the thread only.
  /// Nonce and interface of each call whose proof was valid. Used by the thread only.
  std::set<std::pair<std::string, unsigned>> heard_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// True if a packet of `bytes` bytes, including the headers of IP and UDP, is answered. The packet
/// is sent with fragmentation disabled.
bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes);

}  // namespace mccl::cli::probe
