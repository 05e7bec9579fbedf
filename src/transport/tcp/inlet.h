// Passes connections that another part of this process has accepted to a listener. The listener
// returns them in order, as if it had accepted them itself.
#pragma once

#include <utility>

#include "transport/tcp/listener.h"

namespace mccl::transport::tcp {

/// A queue of accepted connections and the listener that returns them. hand_over() and listener()
/// may be called by different threads, but each by one thread at a time.
class Inlet {
 public:
  /// Throws Error.
  Inlet();

  /// May be called only once.
  Listener listener() { return Listener(std::move(reading_end_)); }
  /// Never blocks. The connection is closed if the listener has closed or its queue is full.
  void hand_over(Socket socket);

 private:
  Socket reading_end_;
  Socket writing_end_;
};

/// Receives the next connection from the reading end of an Inlet. Called by Listener.
Accepted take_handed_over(const Socket& reading_end);

}  // namespace mccl::transport::tcp
