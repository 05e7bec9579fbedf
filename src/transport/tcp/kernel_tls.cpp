#include "transport/tcp/kernel_tls.h"

#if defined(__linux__) && __has_include(<linux/tls.h>)
#define MCCL_HAS_KERNEL_TLS
#include <linux/tls.h>
#endif
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/no_signal.h"
#include "mccl/error.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

#ifdef MCCL_HAS_KERNEL_TLS

namespace {

/// Gives the kernel a key. `Info` is the kernel's structure for the cipher `number_of_cipher`.
template <typename Info>
bool give_key(int descriptor, RecordKeys::Use use, std::uint16_t number_of_cipher,
              std::span<const std::byte> key, std::span<const std::byte, 12> mask,
              std::uint64_t number) noexcept {
  Info info = {};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = number_of_cipher;
  if (key.size() != sizeof info.key) return false;
  std::memcpy(info.key, key.data(), sizeof info.key);
  // The kernel calls the first part of the mask salt, and the rest iv.
  static_assert(sizeof info.salt + sizeof info.iv == mask.size());
  if constexpr (sizeof info.salt > 0) std::memcpy(info.salt, mask.data(), sizeof info.salt);
  std::memcpy(info.iv, mask.data() + sizeof info.salt, sizeof info.iv);
  for (std::size_t i = 0; i < sizeof number; ++i)
    info.rec_seq[sizeof info.rec_seq - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  const int direction = use == RecordKeys::Use::seal ? TLS_TX : TLS_RX;
  const bool is_given = ::setsockopt(descriptor, SOL_TLS, direction, &info, sizeof info) == 0;
  OPENSSL_cleanse(&info, sizeof info);
  return is_given;
}

/// Tries to give the kernel two keys for the same direction of a connection on loopback.
bool try_kernel() {
  Listener listener(*Address::parse_numeric("127.0.0.1", 0), 0);
  const Socket socket = Socket::stream(listener.address().family());
  const int error = start_connect(socket, listener.address(), nullptr);
  if (error == EINPROGRESS) {
    constexpr int kLimitMs = 1000;
    pollfd entry = {socket.descriptor(), POLLOUT, 0};
    if (::poll(&entry, 1, kLimitMs) <= 0) return false;
  }
  constexpr std::array<std::byte, 16> kNoKey{};
  const auto give = [&] {
    return give_key_to_kernel(socket.descriptor(), RecordKeys::Use::seal, CipherSuite::aes_128_gcm,
                              kNoKey, {}, 0);
  };
  return start_kernel_tls(socket.descriptor()) && give() && give();
}

}  // namespace

bool kernel_offers_tls() {
  static const bool offers = [] {
    try {
      return try_kernel();
    } catch (const Error&) {
      return false;
    }
  }();
  return offers;
}

bool start_kernel_tls(int descriptor) noexcept {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0;
}

bool give_key_to_kernel(int descriptor, RecordKeys::Use use, CipherSuite suite,
                        std::span<const std::byte> key, const std::array<std::byte, 12>& mask,
                        std::uint64_t number) noexcept {
  if (suite == CipherSuite::chacha20_poly1305) {
    return give_key<tls12_crypto_info_chacha20_poly1305>(
        descriptor, use, TLS_CIPHER_CHACHA20_POLY1305, key, mask, number);
  }
  return give_key<tls12_crypto_info_aes_gcm_128>(descriptor, use, TLS_CIPHER_AES_GCM_128, key, mask,
                                                 number);
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
  if (got < 0) return {.error = errno};
  FromKernel result{.bytes = static_cast<std::size_t>(got)};
  const cmsghdr* const kind = CMSG_FIRSTHDR(&header);
  if (kind != nullptr && kind->cmsg_level == SOL_TLS && kind->cmsg_type == TLS_GET_RECORD_TYPE)
    result.type = static_cast<ContentType>(*CMSG_DATA(kind));
  return result;
}

#else

bool kernel_offers_tls() { return false; }
bool start_kernel_tls(int) noexcept { return false; }
bool give_key_to_kernel(int, RecordKeys::Use, CipherSuite, std::span<const std::byte>,
                        const std::array<std::byte, 12>&, std::uint64_t) noexcept {
  return false;
}
TransferResult send_message_by_kernel(int, ContentType, std::span<const std::byte>) noexcept {
  return {0, ENOTSUP};
}
FromKernel receive_from_kernel(int, std::span<std::byte>) noexcept { return {.error = ENOTSUP}; }

#endif

}  // namespace mccl::transport::tcp
