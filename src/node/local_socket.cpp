#include "node/local_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "base/no_signal.h"
#include "base/open_files.h"

namespace mccl::node {
namespace {

/// Maximum number of descriptors in one message.
constexpr std::size_t kMostDescriptors = 4;

/// Returns the address of a local socket. The address is a path if the name begins with a slash.
/// Otherwise it is an abstract name, which only Linux has.
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::size_t most = sizeof address.sun_path - 1;
  const std::size_t n = std::min(name.size(), most);
  const bool is_file = name.starts_with('/');
  std::memcpy(address.sun_path + (is_file ? 0 : 1), name.data(), n);
  const std::size_t whole = offsetof(sockaddr_un, sun_path) + 1 + n;
  return {address, static_cast<socklen_t>(is_file ? sizeof address : whole)};
}

std::string unpredictable_name() {
  std::random_device random;
#ifdef __linux__
  const char* folder = "";
#else
  const char* folder = "/tmp/";
#endif
  return fmt::format("{}mccl-{:08x}{:08x}{:08x}{:08x}", folder, random(), random(), random(),
                     random());
}

[[noreturn]] void fail(const char* what, int error) {
  const std::string text = fmt::format("{}: {}", what, describe_errno(error));
  if (lacks_files(error)) throw OutOfDescriptors(text);
  throw Error(text);
}

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (!socket) fail("cannot create a Unix-domain socket", errno);
  ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
  raise_no_signal(socket.get());
  return socket;
}

void wait_readable(const Descriptor& socket, Clock::time_point deadline) {
  if (!wait_for(socket.get(), POLLIN, deadline))
    throw TimeoutError("a process on this host did not answer in time");
}

/// The process and the user at the other end, as far as the system reports them.
struct Peer {
  pid_t process = 0;
  std::optional<uid_t> user;
};

Peer peer_of(const Descriptor& socket) {
#ifdef __linux__
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return {};
  return {peer.pid, peer.uid};
#else
  uid_t user = 0;
  gid_t group = 0;
  if (::getpeereid(socket.get(), &user, &group) != 0) return {};
  return {0, user};
#endif
}

bool is_private_folder(const std::string& path) {
  struct stat found = {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid() && (found.st_mode & 077) == 0;
}

}  // namespace

std::string status_folder() {
  const std::string of_user = fmt::format("/run/user/{}", ::geteuid());
  return is_private_folder(of_user) ? of_user + "/mccl" : fmt::format("/tmp/mccl-{}", ::geteuid());
}

std::string make_status_folder() {
  std::string folder = status_folder();
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(fmt::format("cannot make the folder {}: {}", folder, std::strerror(errno)));
  if (is_private_folder(folder)) return folder;
  throw Error(fmt::format("{} is not a folder that only this user can enter; remove it", folder));
}

std::pair<LocalConnection, bool> LocalConnection::dial(const std::string& name) {
  Descriptor socket = make_socket();
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK);
  const auto [address, length] = address_of(name);
  int result = -1;
  do {
    result = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return {LocalConnection(), errno == EAGAIN};
  ::fcntl(socket.get(), F_SETFL, flags);
  return {LocalConnection(std::move(socket)), false};
}

bool LocalConnection::same_user() const { return peer_of(socket_).user == ::geteuid(); }

pid_t LocalConnection::process_id() const { return peer_of(socket_).process; }

Descriptor LocalConnection::process() const {
#if defined(__linux__) && defined(SYS_pidfd_open)
  if (const pid_t pid = process_id(); pid > 0)
    return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
  return {};
}

bool LocalConnection::send(std::span<const std::byte> bytes,
                           std::span<const int> descriptors) const {
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  // The whole message is sent at once, because it fits into the empty buffer of a new local socket.
  const ssize_t sent = ::sendmsg(socket_.get(), &message, kNoSignal);
  if (sent == static_cast<ssize_t>(bytes.size())) return true;
  if (sent < 0 && (errno == ETOOMANYREFS || errno == EINTR || errno == ENOBUFS)) return false;
  throw PeerError(
      fmt::format("a process on this host disconnected at start-up: {}", std::strerror(errno)));
}

std::vector<Descriptor> LocalConnection::receive(std::span<std::byte> bytes,
                                                 Clock::time_point deadline) const {
  std::vector<Descriptor> descriptors;
  while (!bytes.empty()) {
    wait_readable(socket_, deadline);
    iovec part = {bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> room = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
#ifdef MSG_CMSG_CLOEXEC
    constexpr int kFlags = MSG_CMSG_CLOEXEC;
#else
    constexpr int kFlags = 0;
#endif
    const ssize_t n = ::recvmsg(socket_.get(), &message, kFlags);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw PeerError("a process on this host disconnected at start-up");
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        if (!descriptors.emplace_back(descriptor))
          fail("cannot receive the file descriptors that a process on this host sent", errno);
      }
    }
    // If this process may not have more descriptors, the system drops some of the passed
    // descriptors and sets MSG_CTRUNC. If kMostDescriptors arrived, the flag means only that the
    // sender passed too many.
    if ((message.msg_flags & MSG_CTRUNC) != 0 && descriptors.size() < kMostDescriptors) {
      fail("cannot receive the file descriptors that a process on this host sent", EMFILE);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return descriptors;
}

LocalListener::LocalListener(int backlog) : LocalListener(unpredictable_name(), backlog) {}

LocalListener::LocalListener(std::string name, int backlog)
    : name_(std::move(name)), socket_(make_socket()) {
  const auto [address, length] = address_of(name_);
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(socket_.get(), backlog) != 0) {
    fail("cannot listen for processes on this host", errno);
  }
}

LocalListener::~LocalListener() {
  if (socket_ && name_.starts_with('/')) ::unlink(name_.c_str());
}

LocalConnection LocalListener::accept(Clock::time_point deadline) const {
  for (;;) {
    wait_readable(socket_, deadline);
    Descriptor accepted(::accept(socket_.get(), nullptr, nullptr));
    if (!accepted && (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED)) continue;
    if (!accepted) fail("cannot accept a connection from a process on this host", errno);
    ::fcntl(accepted.get(), F_SETFD, FD_CLOEXEC);
    raise_no_signal(accepted.get());
    return LocalConnection(std::move(accepted));
  }
}

}  // namespace mccl::node
