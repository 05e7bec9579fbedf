#include "transport/tcp/listener.h"

#include <cerrno>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "base/wake_pipe.h"

namespace mccl::transport::tcp {

namespace {

constexpr int kBacklog = 1024;

void set_flag(const Socket& socket, int level, int name, int value, const Address& address) {
  if (::setsockopt(socket.descriptor(), level, name, &value, sizeof value) == 0) return;
  const int error = errno;
  throw BindError(error, "cannot prepare to listen on " + address.text());
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

}  // namespace

/// The connections that an Inlet's listener has not returned yet. The destructor takes no lock: it
/// may run in the child of a fork, where the lock may stay held forever by a thread that exists
/// only in the parent.
class HandedOver {
 public:
  int descriptor() const { return waker_.descriptor(); }

  void add(Socket socket) {
    {
      const std::lock_guard lock(mutex_);
      if (sockets_.size() >= static_cast<std::size_t>(kBacklog)) return;
      sockets_.push_back(std::move(socket));
    }
    waker_.wake();
  }
  /// Returns the oldest connection, or an empty Socket if there is none.
  Socket take() {
    const std::lock_guard lock(mutex_);
    if (sockets_.empty()) {
      waker_.drain();
      return {};
    }
    Socket socket = std::move(sockets_.front());
    sockets_.pop_front();
    return socket;
  }

 private:
  WakePipe waker_;
  std::mutex mutex_;
  std::deque<Socket> sockets_;  // guarded by mutex_
};

Listener::Listener(const Address& address, std::size_t buffer_bytes) {
  try {
    socket_ = Socket::stream(address.family());
  } catch (const SocketError& error) {
    throw BindError(error);
  }
  if (address.family() == AF_INET6)
    set_flag(socket_, IPPROTO_IPV6, IPV6_V6ONLY, address.is_wildcard() ? 0 : 1, address);
  // SO_REUSEADDR is set only for a given port, because a port chosen by the kernel must not be
  // shared with another socket.
  if (address.port() != 0) set_flag(socket_, SOL_SOCKET, SO_REUSEADDR, 1, address);
  set_buffer_bytes(socket_, buffer_bytes);
  if (::bind(socket_.descriptor(), address.data(), address.size()) != 0 ||
      ::listen(socket_.descriptor(), kBacklog) != 0) {
    const int error = errno;
    throw BindError(error, "cannot listen on " + address.text());
  }
  address_ = socket_.local();
}

int Listener::descriptor() const { return inlet_ ? inlet_->descriptor() : socket_.descriptor(); }

Accepted Listener::accept() {
  if (inlet_) {
    Socket socket = inlet_->take();
    const Address from = socket.remote();
    return {std::move(socket), from};
  }
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
      (void)accepted.socket.remote();  // A link needs it even if the connection is reset soon.
      make_non_blocking(accepted.socket);
      tune_stream(accepted.socket);
      return accepted;
    }
    if (means_try_the_next(errno)) continue;
    const int error = errno;
    // Linux allocates a descriptor before it looks for a connection, so accept can fail for lack of
    // descriptors although no connection is waiting.
    const bool none_waits = error == EAGAIN || error == EWOULDBLOCK ||
                            (lacks_files(error) && !is_ready(socket_, POLLIN));
    if (!none_waits) accepted.error = error;
    return accepted;
  }
}

Inlet::Inlet() : unclaimed_(std::make_shared<HandedOver>()), connections_(unclaimed_) {}

void Inlet::hand_over(Socket socket) {
  try {
    if (const auto open = connections_.lock()) open->add(std::move(socket));
  } catch (const std::bad_alloc&) {
    // There is no memory to queue the connection, so it is closed, as if the queue were full.
  }
}

}  // namespace mccl::transport::tcp
