// Single UDP packets between probes. Test packets show which packet sizes arrive. Discovery
// messages ("calls") find the host at the other end of each cable. They need only link-local
// addresses, so they work before the cable is configured.
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
#include <vector>

#include "base/clock.h"
#include "cli/probe/protocol.h"
#include "transport/tcp/socket.h"

namespace mccl::cli::probe {

using transport::tcp::Socket;

struct Packet {
  std::string head;  ///< The packet's first line, at most 400 bytes.
  Address from;
  unsigned interface = 0;  ///< Index of the receiving interface; 0: unknown.
  bool to_all = false;     ///< True if the packet was sent to all hosts of the network (multicast).
};

/// A packet's first line, whose sender has proved that it knows the key. The words are parts of
/// Packet::head.
struct Message {
  enum class Kind {
    test,  ///< A test packet: "NONCE SIZE PROOF".
    // MulticastProbe defines these messages.
    call,  ///< Contains "call NONCE NAME INTERFACE PROOF".
    who,   ///< Contains "who NONCE NONCE-2 PROOF".
    here,  ///< Contains "here NONCE-2 NAME INTERFACE PROOF".
  };
  Kind kind = Kind::test;
  std::vector<std::string_view> words;
};
/// Parses a packet's first line. Empty if it is malformed or its proof is invalid.
std::optional<Message> parse_message(const Secret& secret, std::string_view head);

/// Answers packets until it is destroyed. A test packet that proves knowledge of the key gets a
/// smaller packet as its answer.
///
/// Also sends and receives calls. A call starts a handshake of three messages, each with a proof
/// that the sender knows the key:
///   call NONCE NAME INTERFACE    sent by multicast; NONCE is new, NAME and INTERFACE the caller's
///   who NONCE NONCE-2            the receiver's challenge to the caller; NONCE-2 is new
///   here NONCE-2 NAME INTERFACE  the caller's response, through the interface of its call
/// The receiver reports "heard" once a valid "here" has arrived, so never for a replayed "call". It
/// sends "who" to the caller's address first. If no "here" arrives, it repeats "who" by multicast,
/// and finally reports the call as "unanswered".
class MulticastProbe {
 public:
  /// Receives each report, "heard" or "unanswered". Called on a thread of this object.
  using Say = std::function<void(const nlohmann::json& answer)>;

  MulticastProbe(const Secret& secret, Say say);
  ~MulticastProbe();
  MulticastProbe(const MulticastProbe&) = delete;
  MulticastProbe& operator=(const MulticastProbe&) = delete;

  /// True if this host can receive calls.
  bool hears() const { return static_cast<bool>(socket_); }
  /// Port at which test packets are answered; 0 if the system provides no socket.
  std::uint16_t packet_port() const {
    return packets_ ? packets_.local().port() : std::uint16_t{0};
  }
  /// Sends a call through every interface that is up and has a link-local address. While such an
  /// address is tentative, as on an interface that has just come up, blocks for up to 2.5 s.
  void call(const std::string& name);

 private:
  /// Where this host sent or received a call, and the names in the call.
  struct Place {
    unsigned interface = 0;  ///< Index of the local interface.
    std::string name;        ///< The caller's name.
    std::string from;        ///< The name of the caller's interface.
  };
  /// A "who" message whose answer, a "here" message, has not arrived.
  struct Challenge {
    Place place;
    std::string text;
    Clock::time_point again;
    int asked = 1;
  };

  void run();
  void answer(const Packet& packet);
  void take(const Packet& packet);
  // The words of these messages belong to a valid message.
  void take_call(const Packet& packet, std::span<const std::string_view> words);
  void take_question(const Packet& packet, std::span<const std::string_view> words);
  void take_answer(const Packet& packet, std::span<const std::string_view> words);
  std::optional<Place> called(std::string_view nonce);
  void report(const char* what, const Place& place);
  void ask_again();

  const Secret& secret_;
  const Say say_;
  Socket socket_;
  Socket packets_;
  std::mutex mutex_;
  std::map<std::string, Place> called_;  ///< This host's calls, by their nonce. Guarded by mutex_.
  // Used by thread_ only: challenges by their own nonce (NONCE-2), and the nonce and interface of
  // each valid call.
  std::map<std::string, Challenge> questions_;
  std::set<std::pair<std::string, unsigned>> heard_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// True if an unfragmented packet of `bytes` bytes, with the headers of IP and UDP, is answered.
bool packet_arrives(const Secret& secret, const Address& to, const Address* source, int bytes);

}  // namespace mccl::cli::probe
