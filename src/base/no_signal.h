// To write to a peer that is gone is an error of that call, never a signal that ends the process.
#pragma once

#include <sys/socket.h>

namespace mccl {

#ifdef SO_NOSIGPIPE
// macOS asks for it once for a socket. Its newest headers have the flag too, which the older
// systems that MCCL runs on would not heed.
inline constexpr int kNoSignal = 0;
inline void raise_no_signal(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
}
#else
inline constexpr int kNoSignal = MSG_NOSIGNAL;  ///< For every send and sendmsg.
inline void raise_no_signal(int) {}
#endif

}  // namespace mccl
