// Receives the TLS records of a connection and decrypts them.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "transport/tcp/byte_queue.h"
#include "transport/tcp/cipher_threads.h"
#include "transport/tcp/record_keys.h"
#include "transport/tcp/transfer.h"

namespace mccl::transport::tcp {

/// Number of records that are encrypted before a system call sends them. They are still in the
/// cache then.
inline constexpr std::size_t kRecordsPerCall = 4;
/// Sizes of a stream's buffers without and with threads that help. There is room for one record
/// more than is sent at once, for messages of TLS.
inline constexpr std::size_t kNarrowBytes = (kRecordsPerCall + 1) * kFullRecordBytes;
inline constexpr std::size_t kWideBytes = (CipherThreads::kMostRecords + 1) * kFullRecordBytes;

/// Reads one direction of a TLS 1.3 connection after the handshake. Not thread-safe. No call
/// blocks.
class RecordReader {
 public:
  /// `descriptor` is a non-blocking socket, which must stay open for the life of this object.
  /// Throws Error if OpenSSL has no memory, and std::bad_alloc.
  RecordReader(const TrafficSecret& secret, int descriptor);

  /// Prepares for `helpers` threads that decrypt too. Throws Error or std::bad_alloc if memory runs
  /// out; the reader can then be used as before.
  void widen(std::size_t helpers);
  /// Lets the kernel decrypt the following records; see kernel_tls.h. Returns false, without a
  /// change, if bytes of a record have already arrived, or if the kernel refuses.
  bool move_to_kernel();
  /// Makes receive() take at most one record from the system. It is needed while the next owner of
  /// the socket has to be told by poll(2) about the bytes that follow.
  void read_single_records(bool single) { reads_single_records_ = single; }

  /// Returns no bytes and no error once the peer has ended the stream. The error is ECONNRESET if
  /// the connection ends without close_notify from the peer, and EBADMSG for a record that cannot
  /// be decrypted. `threads` help to decrypt, and require widen(); null if none help.
  TransferResult receive(std::span<std::byte> to, CipherThreads* threads = nullptr);
  /// True if receive() may return bytes although the socket is not readable.
  bool has_input() const;

  /// True if the peer's system has closed the connection in good order, but the stream lacks its
  /// end. This happens if the peer's process dies.
  bool is_cut_short() const { return broken_ == ECONNRESET && input_end_ == kEndOfInput; }
  /// The errno with which receiving failed; 0 if it has not failed.
  int broken() const { return broken_; }
  /// The last alert of the peer; 0 (close_notify) at first.
  std::byte alert() const { return alert_; }
  /// True if the peer has asked this end to replace its key since the last call.
  bool take_request_for_key() { return std::exchange(is_key_requested_, false); }
  /// Must be called if the system has reported an error of the connection for a send. It then
  /// reports the end of the connection, in place of the error, to the next receive.
  void sending_has_failed() { has_failed_to_send_ = true; }

  /// Size in bytes of the buffers.
  std::size_t buffer_bytes() const { return in_.capacity() + rest_.capacity(); }

 private:
  /// Maximum number of records that are received and decrypted together.
  static constexpr std::size_t kMostArrived = 8;
  /// Value of input_end_ for an end in good order: without an error, also of an earlier send.
  static constexpr int kEndOfInput = -1;

  /// A record that has arrived.
  struct Arrived {
    std::span<const std::byte> record;
    std::byte* to = nullptr;  ///< Where its payload belongs.
    std::optional<RecordKeys::Opened> opened = std::nullopt;
  };

  bool has_ended() const { return broken_ != 0 || is_over_; }
  /// Receives payload that the kernel has decrypted.
  TransferResult receive_decrypted(std::span<std::byte> to);
  /// Receives records into in_, which contains no complete record. Returns false if none have
  /// arrived, or if the connection has ended.
  bool fill();
  /// Receives up to `most` bytes into in_ without moving its bytes. Returns false if none have
  /// arrived. Sets input_end_ if the connection has ended.
  bool receive_more(std::size_t most);
  /// Sets input_end_ after a system call that has received nothing. `error`: its errno or 0.
  void end_input(int error);
  /// Sets broken_ for input_end_.
  void break_off() { broken_ = input_end_ == kEndOfInput ? ECONNRESET : input_end_; }
  /// Returns the record at `position` of in_; an empty span if it is not complete, or if TLS allows
  /// no such record. Sets broken_ if TLS does not allow the first record.
  std::span<const std::byte> record_at(std::size_t position);
  /// Decrypts records into `to`. Returns the number of bytes of payload. If `to` is too small for
  /// the next record, the rest of its payload waits in rest_.
  std::size_t open(std::span<std::byte> to);
  /// Decrypts `count` records of arrived_, and removes from in_ those that it processes. Returns
  /// the number of bytes of payload.
  std::size_t open(std::size_t count);
  /// Processes a message of TLS itself.
  void take_message(ContentType type, std::span<const std::byte> message);
  /// Copies from rest_.
  std::size_t take_rest(std::span<std::byte> to);

  RecordKeys keys_;
  const int descriptor_;
  CipherThreads* threads_ = nullptr;   ///< Threads that help this call of receive(), or null.
  bool reads_single_records_ = false;  ///< See read_single_records().
  bool is_in_kernel_ = false;          ///< True if the kernel decrypts the records.
  bool has_drained_kernel_ = true;     ///< False if the kernel may have more payload.
  std::uint64_t received_ = 0;         ///< Number of records received under the current key.
  int empty_records_ = 0;              ///< Number of consecutive records without data.

  int broken_ = 0;                   ///< See broken().
  bool is_over_ = false;             ///< True if the peer has ended the stream.
  bool has_failed_to_send_ = false;  ///< See sending_has_failed().
  bool is_key_requested_ = false;    ///< See take_request_for_key().
  std::byte alert_{};                ///< See alert().
  /// The errno with which the system ended the input, or kEndOfInput; 0 while bytes may arrive. The
  /// bytes in in_ come before this end.
  int input_end_ = 0;

  ByteQueue in_;    ///< Records that have arrived.
  ByteQueue rest_;  ///< Payload for which receive() had no room.
  std::array<Arrived, kMostArrived> arrived_;
};

}  // namespace mccl::transport::tcp
