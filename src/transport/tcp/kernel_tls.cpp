#include "transport/tcp/kernel_tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#if defined(__linux__) && __has_include(<linux/tls.h>)
#include <linux/tls.h>
#endif

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/no_signal.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

// The headers of old systems lack some of these names.
#if defined(TCP_ULP) && defined(SOL_TLS) && defined(TLS_1_3_VERSION)

namespace {

// Newer than the headers of some systems.
#ifdef TLS_RX_EXPECT_NO_PAD
constexpr int kExpectNoPadding = TLS_RX_EXPECT_NO_PAD;
#else
constexpr int kExpectNoPadding = 4;
#endif

/// Tries to give the kernel two keys for the same direction of a connection on loopback.
bool try_kernel() {
  Listener listener(*Address::parse_numeric("127.0.0.1", 0), 0);
  const Socket socket = Socket::stream(listener.address().family());
  if (start_connect(socket, listener.address(), nullptr) == EINPROGRESS)
    (void)wait_for(socket.descriptor(), POLLOUT, Clock::now() + std::chrono::seconds(1));
  constexpr RecordKey kNoKey{};
  const auto give = [&] {
    return give_key_to_kernel(socket.descriptor(), RecordKeys::Use::seal, kNoKey, {}, 0) == 0;
  };
  return start_kernel_tls(socket.descriptor()) && give() && give();
}

}  // namespace

bool kernel_offers_tls() noexcept {
  enum Answer { unknown, no, yes };
  static std::atomic<Answer> answer = unknown;
  try {
    if (answer == unknown) answer = try_kernel() ? yes : no;
  } catch (const std::exception&) {
    // There are no descriptors, or there is no memory.
  }
  return answer == yes;
}

bool start_kernel_tls(int descriptor) noexcept {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0;
}

int give_key_to_kernel(int descriptor, RecordKeys::Use use, const RecordKey& key,
                       const std::array<std::byte, 12>& mask, std::uint64_t number) noexcept {
  tls12_crypto_info_aes_gcm_128 info = {};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = TLS_CIPHER_AES_GCM_128;
  static_assert(sizeof info.key == sizeof key);
  std::memcpy(info.key, key.data(), sizeof info.key);
  // The kernel calls the first part of the mask salt, and the rest iv.
  static_assert(sizeof info.salt + sizeof info.iv == sizeof mask);
  std::memcpy(info.salt, mask.data(), sizeof info.salt);
  std::memcpy(info.iv, mask.data() + sizeof info.salt, sizeof info.iv);
  for (std::size_t i = 0; i < sizeof number; ++i)
    info.rec_seq[sizeof info.rec_seq - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  const int direction = use == RecordKeys::Use::seal ? TLS_TX : TLS_RX;
  const int error =
      ::setsockopt(descriptor, SOL_TLS, direction, &info, sizeof info) == 0 ? 0 : errno;
  OPENSSL_cleanse(&info, sizeof info);
  // MCCL never pads. Without this option, the kernel copies what it decrypts once more.
  const int yes = 1;
  if (direction == TLS_RX)
    (void)::setsockopt(descriptor, SOL_TLS, kExpectNoPadding, &yes, sizeof yes);
  return error;
}

TransferResult send_message_by_kernel(int descriptor, ContentType type,
                                      std::span<const std::byte> message) noexcept {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(1)> control{};
  iovec piece = {const_cast<std::byte*>(message.data()), message.size()};
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const kind = CMSG_FIRSTHDR(&header);
  kind->cmsg_level = SOL_TLS;
  kind->cmsg_type = TLS_SET_RECORD_TYPE;
  kind->cmsg_len = CMSG_LEN(1);
  *CMSG_DATA(kind) = static_cast<unsigned char>(type);
  const ssize_t sent = ::sendmsg(descriptor, &header, kNoSignal);
  return sent >= 0 ? TransferResult{static_cast<std::size_t>(sent), 0} : TransferResult{0, errno};
}

FromKernel receive_from_kernel(int descriptor, std::span<std::byte> to) noexcept {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(1)> control{};
  iovec piece = {to.data(), to.size()};
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(descriptor, &header, 0);
  if (got < 0) {
    // The last two are the kernel's errors for a header that TLS does not allow.
    const bool is_invalid = errno == EBADMSG || errno == EINVAL || errno == EMSGSIZE;
    return {.error = is_invalid ? EBADMSG : errno};
  }
  FromKernel result{.bytes = static_cast<std::size_t>(got)};
  const cmsghdr* const kind = CMSG_FIRSTHDR(&header);
  if (kind != nullptr && kind->cmsg_level == SOL_TLS && kind->cmsg_type == TLS_GET_RECORD_TYPE)
    result.type = static_cast<ContentType>(*CMSG_DATA(kind));
  return result;
}

#else

bool kernel_offers_tls() noexcept { return false; }
bool start_kernel_tls(int) noexcept { return false; }
int give_key_to_kernel(int, RecordKeys::Use, const RecordKey&, const std::array<std::byte, 12>&,
                       std::uint64_t) noexcept {
  return ENOTSUP;
}
TransferResult send_message_by_kernel(int, ContentType, std::span<const std::byte>) noexcept {
  return {0, ENOTSUP};
}
FromKernel receive_from_kernel(int, std::span<std::byte>) noexcept { return {.error = ENOTSUP}; }

#endif

}  // namespace mccl::transport::tcp
