#include "transport/tcp/listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"
#include "base/open_files.h"

namespace mccl::transport::tcp {

namespace {

constexpr int kBacklog = 1024;

void set_flag(const Socket& socket, int level, int name, int value, const Address& address) {
  if (::setsockopt(socket.descriptor(), level, name, &value, sizeof value) == 0) return;
  const int error = errno;
  throw BindError(error, fmt::format("cannot prepare to listen on {}: {}", address.text(),
                                     describe_errno(error)));
}

// accept4 sets close-on-exec atomically, so that no child forked in between inherits the
// descriptor.
int accept_from(int listener, sockaddr* from, socklen_t* length) {
#ifdef __linux__
  return ::accept4(listener, from, length, SOCK_CLOEXEC | SOCK_NONBLOCK);
#else
  return ::accept(listener, from, length);
#endif
}

bool means_try_the_next(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

/// True if a connection is waiting. Linux allocates a descriptor before it looks for a connection,
/// so accept can fail for lack of descriptors even if no connection is waiting.
bool somebody_waits(const Socket& listener) {
  pollfd entry = {listener.descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

#ifdef MSG_CMSG_CLOEXEC
constexpr int kReceiveFlags = MSG_CMSG_CLOEXEC;
#else
constexpr int kReceiveFlags = 0;
#endif

/// A message of one byte that carries one descriptor. If the message is never received, the system
/// closes the descriptor.
struct Carrier {
  Carrier() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
  }

  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room = {};
  msghdr message = {};
};

/// Receives the next connection from the reading end of an Inlet.
Accepted take_handed_over(const Socket& reading_end) {
  Accepted accepted;
  Carrier carrier;
  if (::recvmsg(reading_end.descriptor(), &carrier.message, kReceiveFlags) < 0) return accepted;
  const cmsghdr* const header = CMSG_FIRSTHDR(&carrier.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) {
    accepted.error = EMFILE;  // The kernel had no descriptor left.
    return accepted;
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  accepted.socket = Socket(descriptor);
  if (!accepted.socket) accepted.error = errno;
  accepted.from = accepted.socket.remote();
  return accepted;
}

}  // namespace

Listener::Listener(const Address& address, std::size_t buffer_bytes) {
  try {
    socket_ = Socket::stream(address.family());
  } catch (const SocketError& error) {
    throw BindError(error.code, error.what());
  }
  if (address.family() == AF_INET6)
    set_flag(socket_, IPPROTO_IPV6, IPV6_V6ONLY, address.is_wildcard() ? 0 : 1, address);
  // A port chosen by the kernel must not be shared with another socket, so SO_REUSEADDR is not set
  // for it.
  if (address.port() != 0) set_flag(socket_, SOL_SOCKET, SO_REUSEADDR, 1, address);
  set_buffer_bytes(socket_, buffer_bytes);
  if (::bind(socket_.descriptor(), address.data(), address.size()) != 0 ||
      ::listen(socket_.descriptor(), kBacklog) != 0) {
    const int error = errno;
    throw BindError(error,
                    fmt::format("cannot listen on {}: {}", address.text(), describe_errno(error)));
  }
  address_ = socket_.local();
}

Listener::Listener(Socket inlet) : socket_(std::move(inlet)), is_inlet_(true) {}

Accepted Listener::accept() {
  if (is_inlet_) return take_handed_over(socket_);
  for (;;) {
    sockaddr_storage raw = {};
    socklen_t length = sizeof raw;
    Accepted accepted;
    accepted.socket =
        Socket(accept_from(socket_.descriptor(), reinterpret_cast<sockaddr*>(&raw), &length));
    if (accepted.socket) {
      const auto from = Address::from(reinterpret_cast<const sockaddr*>(&raw), length);
      if (!from) continue;
      accepted.from = *from;
      make_non_blocking(accepted.socket);
      tune_stream(accepted.socket);
      return accepted;
    }
    if (means_try_the_next(errno)) continue;
    const int error = errno;
    const bool nobody =
        error == EAGAIN || error == EWOULDBLOCK || (lacks_files(error) && !somebody_waits(socket_));
    if (!nobody) accepted.error = error;
    return accepted;
  }
}

Inlet::Inlet() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
    throw Error(fmt::format("cannot make a pair of sockets: {}", describe_errno(errno)));
  reading_end_ = Socket(ends[0]);
  writing_end_ = Socket(ends[1]);
  make_non_blocking(reading_end_);
  make_non_blocking(writing_end_);
}

void Inlet::hand_over(Socket socket) {
  Carrier carrier;
  cmsghdr* const header = CMSG_FIRSTHDR(&carrier.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = socket.descriptor();
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  (void)::sendmsg(writing_end_.descriptor(), &carrier.message, kNoSignal);
}

}  // namespace mccl::transport::tcp
