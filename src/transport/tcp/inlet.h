// Where connections come in that another part of this process has accepted: what is handed over
// comes out of a listener, in order, like what a listener accepts itself.
#pragma once

#include <utility>

#include "transport/tcp/listener.h"

namespace mccl::transport::tcp {

/// hand_over() and listener() by different threads; each by one at a time.
class Inlet {
 public:
  /// Throws Error.
  Inlet();

  /// Once.
  Listener listener() { return Listener(std::move(reading_end_)); }
  /// Never blocks. The connection is closed where the listener has closed or too many wait in it.
  void hand_over(Socket socket);

 private:
  Socket reading_end_;
  Socket writing_end_;
};

/// The next one; of the listener.
Accepted take_handed_over(const Socket& reading_end);

}  // namespace mccl::transport::tcp
