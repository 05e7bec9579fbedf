// Calls through cables: who is at the other end of each, although no cable has an address yet.
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

/// Where all hosts call to each other: nobody has been told another's port yet.
inline constexpr std::uint16_t kCallPort = 29599;

/// Calls and hears until it is destroyed. Three messages go through a cable, each with a proof:
///   call NONCE NAME INTERFACE   to all that hear it
///   who NONCE NONCE-2           the hearer asks the caller, over its own nonce
///   here NONCE-2 NAME INTERFACE the caller, through the interface that it called through
/// Only then the hearer tells "heard". A recorded call is never believed, as nobody can answer for
/// it. The question goes to the caller alone, and to all if no answer comes; a call whose question
/// gets no answer is told as "unanswered".
class Calls {
 public:
  Calls(const Secret& secret, Answers& answers);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  /// False where the system gives no socket at kCallPort.
  bool hears() const { return static_cast<bool>(socket_); }
  /// Calls through every interface that is up and has a link-local address. Waits up to 2.5 s for
  /// interfaces that have only just come up.
  void call(const std::string& name);

 private:
  struct Place {
    unsigned interface = 0;  ///< Its number.
    std::string name;        ///< Of the caller.
    std::string from;        ///< The caller's name of its interface.
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
  /// Where this host called with that nonce.
  std::optional<Place> called(std::string_view nonce);
  void tell(const char* what, const Place& place);
  void ask_again();

  const Secret& secret_;
  Answers& answers_;
  Socket socket_;
  std::mutex mutex_;
  std::map<std::string, Place> called_;        ///< By nonce; guarded by mutex_.
  std::map<std::string, Question> questions_;  ///< By nonce; of the thread.
  /// Calls that were believed to be some host's: nonce and interface. Of the thread.
  std::set<std::pair<std::string, unsigned>> heard_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace mccl::cli::probe
