// One process of a node as its neighbours see it: its arena, and the sockets that wake it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "mccl/error.h"
#include "node/arena.h"

namespace mccl::node {

class NodeProcess {
 public:
  explicit NodeProcess(std::size_t capacity = std::size_t{4} << 20)
      : arena_(Arena::make(capacity)), sleeper_(arena_->header()) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) throw Error("no pair of sockets");
    wakes_ = {Descriptor(ends[0]), Descriptor(ends[1])};
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    passed_ = PeerArena(copy(arena_->descriptor()));
  }

  static Descriptor copy(int descriptor) { return Descriptor(::dup(descriptor)); }

  Arena& arena() { return *arena_; }
  /// The arena as neighbours map it, at an address other than arena()'s.
  const PeerArena& passed() const { return passed_; }
  int bell_socket() const { return wakes_[1].get(); }
  Bell bell() const { return {passed_.header(), bell_socket()}; }

  /// Drains the wake-up socket and announces sleep. The caller must check its condition once more
  /// before it sleeps.
  void fall_asleep() {
    drain();
    sleeper_.fall_asleep();
  }
  void wake_up() { sleeper_.wake_up(); }
  /// Blocks until another process rings. Returns false on timeout.
  bool sleep(int timeout_ms) {
    pollfd entry = {wakes_[0].get(), POLLIN, 0};
    const bool rang = ::poll(&entry, 1, timeout_ms) > 0;
    sleeper_.wake_up();
    return rang;
  }
  /// Closes the socket that is polled, as the death of the process would.
  void stop_listening() { wakes_[0].close(); }

 private:
  void drain() {
    char bytes[64];
    while (::read(wakes_[0].get(), bytes, sizeof bytes) > 0) {
    }
  }

  std::shared_ptr<Arena> arena_;
  Sleeper sleeper_;
  std::array<Descriptor, 2> wakes_;
  PeerArena passed_;
};

}  // namespace mccl::node
