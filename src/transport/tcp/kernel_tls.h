// TLS records that the Linux kernel encrypts and decrypts.
//
// After the handshake, a socket gets the key of a direction. From then on, sendmsg(2) and
// recvmsg(2) move payload, and the kernel makes and opens the records. This saves one copy of each
// byte in each direction. Network cards that can encrypt may do the work. Otherwise, the kernel
// uses only the thread that makes the system call.
//
// MCCL uses kernels that can replace a key (Linux 6.14 and later), because a connection needs a new
// key after Encryption::kRecordsPerKey records. The kernel's module `tls` must be loaded: the
// kernel loads it by itself only for privileged processes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/tcp/record_keys.h"
#include "transport/tcp/transfer.h"

namespace mccl::transport::tcp {

/// True if the kernel of this host can encrypt and replace keys. The first call tries it on a
/// connection of its own; if there are no resources for that, returns false, and the next call
/// tries it again. Thread-safe.
bool kernel_offers_tls() noexcept;

/// Prepares a connected socket for keys. Returns false if the kernel refuses.
bool start_kernel_tls(int descriptor) noexcept;

/// Gives the kernel the key of one direction, or replaces it. `number` is that of the next record.
/// Returns 0 or an errno. A network card that encrypts may have to send other records first: the
/// errno is then EAGAIN.
int give_key_to_kernel(int descriptor, RecordKeys::Use use, const RecordKey& key,
                       const std::array<std::byte, 12>& mask, std::uint64_t number) noexcept;

/// Sends a message of TLS itself in a record of its own. The kernel takes it whole or not at all.
TransferResult send_message_by_kernel(int descriptor, ContentType type,
                                      std::span<const std::byte> message) noexcept;

/// Payload of one type that the kernel has decrypted.
struct FromKernel {
  ContentType type = ContentType::application_data;
  std::size_t bytes = 0;
  /// An errno or 0: EBADMSG for an invalid record. The connection has ended if both this and
  /// `bytes` are 0.
  int error = 0;
};
/// Receives payload of one type. A message of TLS itself comes alone.
FromKernel receive_from_kernel(int descriptor, std::span<std::byte> to) noexcept;

}  // namespace mccl::transport::tcp
