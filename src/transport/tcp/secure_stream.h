// TLS 1.3 on one connection. A Socket sends and receives all bytes through its SecureStream, which
// encrypts bytes into records, and decrypts the records that arrive.
//
// A record cannot be withdrawn once it is encrypted. So send() counts bytes as accepted once they
// are encrypted, and holds the records that the system does not take yet. flush() sends the held
// records later.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/tcp/byte_queue.h"
#include "transport/tcp/encryption.h"
#include "transport/tcp/outbox.h"
#include "transport/tcp/record_keys.h"
#include "transport/tcp/record_reader.h"
#include "transport/tcp/tls_handshake.h"
#include "transport/tcp/transfer.h"

namespace mccl::transport::tcp {

/// The TLS stream of one connection. Not thread-safe. No call blocks.
class SecureStream {
 public:
  using Key = ConnectionKey;
  using Role = TlsRole;
  /// `descriptor` is a connected, non-blocking socket, which must stay open for the life of this
  /// object. Throws Error if OpenSSL has no memory.
  SecureStream(std::shared_ptr<const Encryption> encryption, Role role, const Key& key,
               int descriptor);
  /// Sends the end of the stream (close_notify) if the system takes it now. Sends nothing in the
  /// child of a fork.
  ~SecureStream();
  SecureStream(const SecureStream&) = delete;
  SecureStream& operator=(const SecureStream&) = delete;

  enum class State : std::uint8_t { waiting, open, failed };
  /// Continues the handshake. Bytes may be sent and received once this function has returned
  /// State::open.
  State advance();
  /// The reason for State::failed.
  const std::string& trouble() const { return trouble_; }

  /// Sets the outbox that will send held bytes. Throws std::bad_alloc if memory runs out. From this
  /// call on, the kernel may encrypt and decrypt; see KernelTls.
  void use(std::shared_ptr<Outbox> outbox);
  /// True if the kernel encrypts the bytes that this end sends.
  bool is_in_kernel() const { return is_in_kernel_; }

  /// Sends `first` followed by `second`. Counts bytes as moved once they are encrypted, although
  /// some may still be pending().
  TransferResult send(std::span<const std::byte> first, std::span<const std::byte> second = {});
  /// See RecordReader::receive().
  TransferResult receive(std::span<std::byte> to);
  /// See RecordReader::is_cut_short().
  bool is_cut_short() const { return reader_ && reader_->is_cut_short(); }
  /// Sends held bytes. Returns 0 if none are left, else an errno.
  int flush() noexcept;
  /// Queues the message that replaces the key for the bytes that this end sends. send() calls this
  /// function whenever a replacement is due. Returns false if TLS has failed.
  bool replace_key();
  /// Number of encrypted bytes that the system has not taken yet; not 0 while a key is due.
  std::size_t pending() const { return out_.size() + (is_key_due_ ? 1 : 0); }
  /// True if receive() may return bytes although the socket is not readable.
  bool has_input() const { return reader_ && reader_->has_input(); }
  /// Queues close_notify, after which this end sends no more bytes, and sends held bytes. Must be
  /// called until it returns a value other than EAGAIN.
  int end() noexcept;

  int descriptor() const { return descriptor_; }
  /// Size in bytes of the stream's buffers.
  std::size_t buffer_bytes() const {
    return out_.capacity() + (reader_ ? reader_->buffer_bytes() : 0);
  }

 private:
  /// A record that is being encrypted.
  struct Sealing {
    RecordKeys::Payload payload;
    std::byte* to = nullptr;
    std::size_t bytes = 0;  ///< Size of the record.
  };

  bool is_open() const { return handshake_ == nullptr; }
  State fail(std::string why);
  State confirm();

  void move_to_kernel() noexcept;
  /// Enlarges the buffers and prepares the keys for the threads of the outbox. Without memory for
  /// that, the stream uses only the thread of its caller.
  void widen() noexcept;

  /// Encrypts the first bytes as records into out_, removes them from the spans, and sends as much
  /// of out_ as the system takes. Returns 0 if it takes everything, else an errno.
  int seal_and_send(std::span<const std::byte>& first, std::span<const std::byte>& second);
  /// Sends the first bytes by the kernel, and removes them from the spans. Returns 0 or an errno.
  int send_by_kernel(std::span<const std::byte>& first, std::span<const std::byte>& second);
  /// Gives the kernel the messages in out_, and the key that is due. Returns 0, or an errno if the
  /// kernel does not take all of that.
  int flush_to_kernel() noexcept;
  /// Handles an errno of a system call that sends.
  int failed_to_send(int error) noexcept;
  /// Encrypts one message of TLS itself into out_. Returns false if OpenSSL fails.
  bool seal_message(ContentType type, std::span<const std::byte> message);

  std::shared_ptr<const Encryption> encryption_;
  std::shared_ptr<Outbox> outbox_;
  const Role role_;
  const int descriptor_;
  const pid_t process_;
  std::unique_ptr<TlsHandshake> handshake_;  ///< Null once the stream is open.
  std::size_t proof_received_ = 0;
  Key their_proof_{};
  std::string trouble_;

  std::optional<RecordReader> reader_;  ///< Set once the TLS handshake is done.
  std::optional<RecordKeys> sending_;   ///< Set together with reader_.
  std::uint64_t sent_ = 0;              ///< Number of records sent under the current key.
  bool has_said_end_ = false;           ///< True if end() has queued close_notify.
  bool has_tried_to_widen_ = false;
  CipherThreads* threads_ = nullptr;  ///< Threads that help; null if there are none.
  bool is_in_kernel_ = false;         ///< See is_in_kernel().
  bool is_key_due_ = false;           ///< True if the kernel has still to get the present key.
  /// Records that the system has not taken yet. If the kernel encrypts: messages of TLS that it has
  /// not taken yet, each after its type and its size, which take one byte each.
  ByteQueue out_;
  std::array<Sealing, CipherThreads::kMostRecords> sealing_;
  std::uint64_t first_sealing_ = 0;  ///< Number of the first record of sealing_.
  /// True if OpenSSL has failed to encrypt a record. Nothing can be sent after that.
  std::atomic<bool> has_failed_to_seal_ = false;
};

}  // namespace mccl::transport::tcp
