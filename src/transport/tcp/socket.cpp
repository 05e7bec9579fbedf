#include "transport/tcp/socket.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/no_signal.h"
#include "base/would_block.h"

namespace mccl::transport::tcp {

namespace {

constexpr std::size_t kMostBufferBytes = std::size_t{1} << 30;
constexpr std::size_t kLeastBufferBytes = 4096;
constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveProbes = 3;
/// Limit of unsent bytes in the kernel (TCP_NOTSENT_LOWAT): enough to keep the network busy. More
/// unsent bytes would only delay later writes, which queue behind them.
[[maybe_unused]] constexpr int kMostNotSent = 512 << 10;
/// Maximum number of keepalive probes that Linux accepts.
[[maybe_unused]] constexpr int kMostProbes = 127;
[[maybe_unused]] constexpr int kLongestSilence = 1'000'000;

// Ignores errors, because connections also work without these options.
void set_option(const Socket& socket, int level, int name, int value) {
  (void)::setsockopt(socket.descriptor(), level, name, &value, sizeof value);
}

std::size_t granted(const Socket& socket, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  if (::getsockopt(socket.descriptor(), SOL_SOCKET, name, &value, &length) != 0) return 0;
#ifdef __linux__
  value /= 2;  // Linux doubles the requested size for its own bookkeeping.
#endif
  return static_cast<std::size_t>(std::max(value, 0));
}

Address address_by(int (*ask)(int, sockaddr*, socklen_t*), int descriptor) {
  sockaddr_storage raw = {};
  socklen_t length = sizeof raw;
  if (ask(descriptor, reinterpret_cast<sockaddr*>(&raw), &length) != 0) return {};
  return Address::from(reinterpret_cast<const sockaddr*>(&raw), length).value_or(Address());
}

TransferResult moved(ssize_t result) {
  return result >= 0 ? TransferResult{static_cast<std::size_t>(result), 0}
                     : TransferResult{0, errno};
}

}  // namespace

Socket Socket::stream(int family) {
#ifdef SOCK_CLOEXEC
  Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
#else
  Socket socket(::socket(family, SOCK_STREAM, 0));
#endif
  if (!socket) throw SocketError(errno, "cannot make a socket");
  make_non_blocking(socket);
  return socket;
}

Address Socket::local() const { return address_by(::getsockname, descriptor()); }

Address Socket::remote() const {
  const Address address = address_by(::getpeername, descriptor());
  if (address.size() != 0) remote_ = address;
  return remote_;
}

TransferResult Socket::send(std::span<const std::byte> bytes) const {
  if (secure_) return secure_->send(bytes);
  return moved(::send(descriptor(), bytes.data(), bytes.size(), kNoSignal));
}

TransferResult Socket::receive(std::span<std::byte> bytes) const {
  if (secure_) return secure_->receive(bytes);
  return moved(::recv(descriptor(), bytes.data(), bytes.size(), 0));
}

bool Socket::end_sending() const noexcept {
  if (secure_ && would_block(secure_->end())) return false;
  // A kernel that encrypts may still hold records, which shutdown() would cut off. The message that
  // ends the stream of TLS suffices.
  if (!secure_ || !secure_->is_in_kernel()) (void)::shutdown(descriptor(), SHUT_WR);
  return true;
}

int Socket::take_error() const {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

std::size_t Socket::unacknowledged() const {
  int bytes = 0;
#if defined(SIOCOUTQ)
  if (::ioctl(descriptor(), SIOCOUTQ, &bytes) != 0) bytes = 0;
#elif defined(SO_NWRITE)
  socklen_t length = sizeof bytes;
  if (::getsockopt(descriptor(), SOL_SOCKET, SO_NWRITE, &bytes, &length) != 0) bytes = 0;
#endif
  return pending() + static_cast<std::size_t>(std::max(bytes, 0));
}

std::size_t Socket::unsent() const {
#if defined(SIOCOUTQNSD)
  int bytes = 0;
  if (::ioctl(descriptor(), SIOCOUTQNSD, &bytes) == 0)
    return pending() + static_cast<std::size_t>(std::max(bytes, 0));
#endif
  return unacknowledged();
}

void make_non_blocking(const Socket& socket) {
  const int flags = ::fcntl(socket.descriptor(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.descriptor(), F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(socket.descriptor(), F_SETFD, FD_CLOEXEC) != 0) {
    throw SocketError(errno, "cannot prepare a socket");
  }
  raise_no_signal(socket.descriptor());
}

std::size_t largest_taken(std::size_t wanted, const std::function<bool(std::size_t)>& ask) {
  for (std::size_t bytes = wanted; bytes >= kLeastBufferBytes; bytes /= 2) {
    if (ask(bytes)) return bytes;
  }
  return 0;
}

std::size_t set_buffer_bytes(const Socket& socket, std::size_t bytes) {
  if (bytes == 0) return 0;
  for (const int name : {SO_SNDBUF, SO_RCVBUF}) {
    largest_taken(std::min(bytes, kMostBufferBytes), [&](std::size_t wanted) {
      const int value = static_cast<int>(wanted);
      return ::setsockopt(socket.descriptor(), SOL_SOCKET, name, &value, sizeof value) == 0;
    });
  }
  return std::min(granted(socket, SO_SNDBUF), granted(socket, SO_RCVBUF));
}

void tune_stream(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_NOTSENT_LOWAT
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kMostNotSent);
#endif
#if defined(TCP_KEEPIDLE)
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
#elif defined(TCP_KEEPALIVE)
  set_option(socket, IPPROTO_TCP, TCP_KEEPALIVE, kKeepAliveIdleSeconds);
#endif
#ifdef TCP_KEEPINTVL
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
#endif
#ifdef TCP_KEEPCNT
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
#endif
}

void reset_when_closed(const Socket& socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void bear_silence([[maybe_unused]] const Socket& socket,
                  [[maybe_unused]] std::chrono::seconds silence) {
#ifdef TCP_KEEPCNT
  const auto probes = (silence.count() - kKeepAliveIdleSeconds) / kKeepAliveIntervalSeconds + 1;
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT,
             static_cast<int>(std::clamp<long long>(probes, kKeepAliveProbes, kMostProbes)));
#endif
}

void limit_silence([[maybe_unused]] const Socket& socket,
                   [[maybe_unused]] std::chrono::seconds silence) {
  const auto seconds = static_cast<int>(std::min<long long>(silence.count(), kLongestSilence));
#if defined(TCP_USER_TIMEOUT)
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
#elif defined(TCP_RXT_CONNDROPTIME)
  set_option(socket, IPPROTO_TCP, TCP_RXT_CONNDROPTIME, seconds);
#endif
}

#ifdef TCP_CONGESTION

namespace {

bool take(const Socket& socket, std::string_view name) {
  return ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string present(const Socket& socket) {
  std::array<char, 32> name = {};
  socklen_t length = name.size() - 1;
  if (::getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0)
    return {};
  return name.data();
}

}  // namespace

bool use_congestion_control(const Socket& socket, const std::string& name) {
  if (name == kOfTheSystem) return true;
  if (name != kChosenForLinks) return take(socket, name);
  if (present(socket).starts_with("bbr") && !take(socket, "cubic")) (void)take(socket, "reno");
  return true;
}

#else

bool use_congestion_control(const Socket&, const std::string& name) {
  return name == kChosenForLinks || name == kOfTheSystem;
}

#endif

int start_connect(const Socket& socket, const Address& destination, const Address* source) {
  if (source != nullptr) {
#ifdef IP_BIND_ADDRESS_NO_PORT
    set_option(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
#endif
    const Address any_port = source->with_port(0);
    if (::bind(socket.descriptor(), any_port.data(), any_port.size()) != 0) return errno;
  }
  if (::connect(socket.descriptor(), destination.data(), destination.size()) == 0) return 0;
  // An interrupted connect continues asynchronously.
  return errno == EINTR ? EINPROGRESS : errno;
}

bool is_ready(const Socket& socket, short events) {
  pollfd entry = {socket.descriptor(), events, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool is_self_connected(const Socket& socket) {
  const Address local = socket.local();
  return local.size() != 0 && local == socket.remote();
}

}  // namespace mccl::transport::tcp
