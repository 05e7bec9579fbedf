// Calls through cables: finds the host at the other end of each cable before any cable has an
// address.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/probe/answers.h"
#include "cli/probe/datagrams.h"
#include "cli/probe/secret.h"

namespace mccl::cli::probe {

/// Port at which all hosts call each other. It is fixed, because no host knows another's ports yet.
inline constexpr std::uint16_t kCallPort = 29599;

/// Calls and listens until it is destroyed. Three messages go through a cable, each with a proof:
///   call NONCE NAME INTERFACE    from the caller to all
///   who NONCE NONCE-2            from the hearer to the caller; NONCE-2 is the hearer's
///   here NONCE-2 NAME INTERFACE  from the caller, through the interface of its call
/// Only then does the hearer report "heard". A replayed call is never believed, because its sender
/// cannot answer the question. The question is sent to the caller alone, and then to all if no
/// answer arrives. A call whose question gets no answer is reported as "unanswered".
class Calls {
 public:
  Calls(const Secret& secret, Answers& answers);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  /// False if the system provides no socket at kCallPort.
  bool hears() const { return static_cast<bool>(socket_); }
  /// Calls through every interface that is up and has a link-local address. Blocks for up to 2.5 s
  /// if interfaces have just come up.
  void call(const std::string& name);

 private:
  struct Place {
    unsigned interface = 0;  ///< Index of the local interface.
    std::string name;        ///< The caller's name.
    std::string from;        ///< The caller's name for its own interface.
  };
  struct Question {
    Place place;
    std::string text;
    Clock::time_point again;
    int asked = 1;
  };

  void run();
  void take(const Packet& packet);
  void take_call(const Packet& packet, std::span<const std::string_view> words);
  void take_question(const Packet& packet, std::span<const std::string_view> words);
  void take_answer(const Packet& packet, std::span<const std::string_view> words);
  /// Returns the call that this host made with this nonce, if any.
  std::optional<Place> called(std::string_view nonce);
  void tell(const char* what, const Place& place);
  void ask_again();

  const Secret& secret_;
  Answers& answers_;
  Socket socket_;
  std::mutex mutex_;
  std::map<std::string, Place> called_;        ///< Keyed by nonce; guarded by mutex_.
  std::map<std::string, Question> questions_;  ///< Keyed by nonce; used by the thread only.
  /// Calls whose proof was valid: nonce and interface. Used by the thread only.
  std::set<std::pair<std::string, unsigned>> heard_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace mccl::cli::probe
