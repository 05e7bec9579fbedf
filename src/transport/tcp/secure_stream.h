// TLS 1.3 on one connection. A Socket sends and receives all bytes through its SecureStream, which
// encrypts bytes into records, and decrypts the records that arrive.
//
// Both ends derive a key for this connection from the job key and the messages of MCCL's own
// handshake, which comes first. Without certificates, that key is the external pre-shared key of
// TLS 1.3. An ephemeral key exchange keeps recorded traffic secret even if the job key becomes
// known later. With certificates, each end proves inside TLS that it knows the key of the
// connection. This proof binds the TLS handshake to MCCL's own handshake.
//
// A record cannot be withdrawn once it is encrypted. So send() counts bytes as accepted once they
// are encrypted, and holds the records that the system does not take yet. flush() sends the held
// records later.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/tcp/encryption.h"

struct ssl_st;

namespace mccl::transport::tcp {

class SecureStream;

/// The streams of one transport that hold encrypted bytes which the system has not taken yet. The
/// transport sends these bytes, because the engine may never write to the link again. Not
/// thread-safe: used under the same lock as its streams.
class Outbox {
 public:
  /// Reserves memory for one more stream, so that wait() need not allocate any. Throws
  /// std::bad_alloc.
  void join();
  void leave(const SecureStream& stream) noexcept;

  /// Adds a stream that holds bytes; no-op if the stream is already in the outbox.
  void wait(SecureStream& stream) noexcept;
  /// Appends the descriptors that become writable when held bytes can be sent.
  void watch(std::vector<pollfd>& descriptors);
  /// True if a stream has begun to hold bytes since the last call of watch(). A thread in poll(2)
  /// does not wait for that stream's descriptor yet.
  bool has_unwatched() const { return has_unwatched_; }
  /// Sends as many of the held bytes as the system takes now.
  void flush() noexcept;

 private:
  std::size_t members_ = 0;
  std::vector<SecureStream*> waiting_;
  bool has_unwatched_ = false;
};

/// Result of sending or receiving: the number of bytes moved, and an errno or 0. If
/// would_block(error) is true, the call must be repeated later.
struct TransferResult {
  std::size_t bytes = 0;
  int error = 0;
};

/// The TLS stream of one connection. Not thread-safe. No call blocks.
class SecureStream {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  using Key = std::array<std::byte, kKeyBytes>;
  enum class Role : std::uint8_t { client, server };

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

  /// Sets the outbox that will send held bytes. Throws std::bad_alloc if memory runs out.
  void use(std::shared_ptr<Outbox> outbox);

  /// Sends `first` followed by `second`. Counts bytes as moved once they are encrypted, although
  /// some may still be pending().
  TransferResult send(std::span<const std::byte> first, std::span<const std::byte> second = {});
  /// Returns no bytes and no error once the peer has ended the stream. The error is ECONNRESET if
  /// the connection ends without close_notify from the peer, and EBADMSG for a record that cannot
  /// be decrypted.
  TransferResult receive(std::span<std::byte> to);
  /// True if the peer's system has closed the connection in good order, but the stream lacks its
  /// end. This happens if the peer's process dies.
  bool is_cut_short() const { return is_cut_short_; }
  /// Sends held bytes. Returns 0 if none are left, else an errno.
  int flush() noexcept;
  /// Queues the message that replaces the key for the bytes that this end sends. send() calls this
  /// function whenever a replacement is due. Returns false if TLS has failed.
  bool replace_key();
  /// Number of encrypted bytes that the system has not taken yet.
  std::size_t pending() const { return out_end_ - out_begin_; }
  /// True if receive() may return bytes although the socket is not readable.
  bool has_input() const;
  /// Queues close_notify, after which this end sends no more bytes, and sends held bytes. Must be
  /// called until it returns a value other than EAGAIN.
  int end() noexcept;

  int descriptor() const { return descriptor_; }
  /// Size in bytes of the buffers of one SecureStream.
  static std::size_t buffer_bytes();

 private:
  struct Callbacks;  ///< The functions that OpenSSL calls.

  bool has_ended() const { return broken_ != 0 || is_over_; }
  bool encrypt(std::span<const std::byte>& bytes);
  /// Returns the errno that describes the failure of an OpenSSL call which returned `result`.
  int error_of(int result);
  State fail(std::string why);
  State confirm();
  Key proof_of(Role role) const;

  std::shared_ptr<const Encryption> encryption_;
  std::shared_ptr<Outbox> outbox_;
  ssl_st* ssl_;
  const Role role_;
  const int descriptor_;
  const pid_t process_;
  Key key_;
  bool is_open_ = false;
  bool is_proof_sent_ = false;
  std::size_t proof_received_ = 0;
  Key their_proof_{};
  std::string trouble_;

  std::uint64_t records_ = 0;  ///< Number of records sent under the current key.
  int broken_ = 0;             ///< The errno with which receiving failed; 0 if it has not failed.
  bool is_over_ = false;       ///< True if the peer has ended the stream.
  bool is_cut_short_ = false;  ///< See is_cut_short().
  /// True if the system has reported an error of the connection for a send. It then reports the end
  /// of the connection, in place of the error, to the next receive.
  bool has_failed_to_send_ = false;
  bool has_said_end_ = false;  ///< True if end() has queued close_notify.

  // Records to send are out_[out_begin_, out_end_); received records are in_[in_begin_, in_end_).
  std::unique_ptr<std::byte[]> out_;
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
  std::unique_ptr<std::byte[]> in_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
};

}  // namespace mccl::transport::tcp
