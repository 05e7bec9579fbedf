// Makes a write to a closed connection fail with an error instead of raising SIGPIPE, which would
// end the process.
#pragma once

#include <sys/socket.h>

namespace mccl {

#ifdef SO_NOSIGPIPE
// macOS has the option SO_NOSIGPIPE, which is set once per socket. Its newest headers define
// MSG_NOSIGNAL as well, but older versions of macOS ignore that flag.
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
