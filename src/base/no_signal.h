// Makes a write to a peer that is gone fail with an error instead of a signal that ends the
// process.
#pragma once

#include <sys/socket.h>

namespace mccl {

#ifdef SO_NOSIGPIPE
// macOS has an option that is set once per socket. Its newest headers define MSG_NOSIGNAL as well,
// but older systems that MCCL runs on ignore it.
inline constexpr int kNoSignal = 0;
inline void raise_no_signal(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
}
#else
inline constexpr int kNoSignal = MSG_NOSIGNAL;  ///< Flag for every send() and sendmsg().
inline void raise_no_signal(int) {}
#endif

}  // namespace mccl
