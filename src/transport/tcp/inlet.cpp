#include "transport/tcp/inlet.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/no_signal.h"

namespace mccl::transport::tcp {
namespace {

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

}  // namespace

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

}  // namespace mccl::transport::tcp
