// Encryption and decryption of TLS 1.3 records (RFC 8446, section 5) in one direction of a
// connection, after the handshake.
//
// OpenSSL performs the handshake, and its ciphers encrypt the records. MCCL builds the records
// itself for two reasons: their payload passes directly between the caller's memory and the buffer
// of the socket, and several threads can work on the records of one connection at the same time.
// OpenSSL's own record layer copies each byte once more in each direction, and uses one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mccl/secret.h"

struct evp_cipher_ctx_st;
struct evp_cipher_st;

namespace mccl::transport::tcp {

/// Types of messages in records (RFC 8446, section 5.1).
enum class ContentType : std::uint8_t { alert = 21, handshake = 22, application_data = 23 };

/// The secret from which the keys of one direction are derived (RFC 8446, section 7.1).
using TrafficSecret = std::array<std::byte, 32>;
/// A key of AES-128-GCM.
using RecordKey = std::array<std::byte, 16>;

/// Sizes in bytes of the parts of a record. A record consists of a header and the encrypted form of
/// its payload, content type and padding, which ends in a tag.
inline constexpr std::size_t kRecordHeaderBytes = 5;
inline constexpr std::size_t kTagBytes = 16;
/// A record's size minus that of its payload, without padding.
inline constexpr std::size_t kRecordOverhead = kRecordHeaderBytes + 1 + kTagBytes;
/// Maximum size of a payload.
inline constexpr std::size_t kRecordPayloadBytes = std::size_t{16} << 10;
/// Size of a record with the largest payload, without padding.
inline constexpr std::size_t kFullRecordBytes = kRecordPayloadBytes + kRecordOverhead;
/// Maximum size of the encrypted part of a record that a peer may send.
inline constexpr std::size_t kMostCiphertextBytes = kRecordPayloadBytes + 256;

// Messages of TLS itself. Alerts: RFC 8446, section 6. KeyUpdate: section 4.6.3; its last byte is
// kUpdateRequested if the receiver must also replace its key.
inline constexpr std::size_t kAlertBytes = 2;
inline constexpr std::byte kCloseNotify{0};
inline constexpr std::array<std::byte, kAlertBytes> kEndOfStream = {std::byte{1}, kCloseNotify};
inline constexpr std::array<std::byte, kAlertBytes> kBadRecord = {std::byte{2}, std::byte{20}};
inline constexpr std::array<std::byte, 5> kKeyUpdate = {std::byte{24}, {}, {}, std::byte{1}, {}};
inline constexpr std::byte kUpdateRequested{1};

/// Returns the size in bytes of the record whose first bytes are `bytes`: 0 if the header is not
/// complete. Returns nullopt if TLS 1.3 allows no such record after the handshake.
std::optional<std::size_t> record_size(std::span<const std::byte> bytes);

/// The keys of one direction. Records are numbered from 0 after each replacement of the key.
/// Thread-safe for calls of seal() and open() on different lanes.
class RecordKeys {
 public:
  enum class Use : std::uint8_t { seal, open };
  /// `use`: the only one of the two functions that may be called. Throws Error if OpenSSL lacks the
  /// cipher or memory.
  RecordKeys(Use use, const TrafficSecret& secret);
  ~RecordKeys();
  RecordKeys(const RecordKeys&) = delete;
  RecordKeys& operator=(const RecordKeys&) = delete;

  /// A lane is the state of one thread that encrypts or decrypts. There is one lane at first.
  /// Throws Error if OpenSSL has no memory.
  void add_lanes(std::size_t count);
  std::size_t lanes() const { return lanes_.size(); }

  /// Replaces the key by the next one (RFC 8446, section 7.2). Returns false if OpenSSL fails, or
  /// if there is no memory.
  bool replace() noexcept;

  /// Gives the kernel the present key; see give_key_to_kernel(). `number`: that of the next record.
  /// Returns 0 or an errno.
  int give_to_kernel(int descriptor, std::uint64_t number) const noexcept;

  /// The payload of a record, in two parts.
  using Payload = std::array<std::span<const std::byte>, 2>;
  /// Writes record `number` with this payload of at most kRecordPayloadBytes to `to`, which has
  /// room for kRecordOverhead bytes more than the payload. Returns false if OpenSSL fails.
  bool seal(std::size_t lane, std::uint64_t number, ContentType type, const Payload& payload,
            std::byte* to) noexcept;

  struct Opened {
    ContentType type{};
    std::size_t bytes = 0;  ///< Size of the payload.
  };
  /// Decrypts record `number`, a whole record as record_size() delimits it, to `to`, which has room
  /// for kRecordOverhead bytes less than the record. Returns nullopt if the record was altered; the
  /// bytes written to `to` are then meaningless.
  std::optional<Opened> open(std::size_t lane, std::uint64_t number,
                             std::span<const std::byte> record, std::byte* to) noexcept;

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_cipher_ctx_st, FreeContext>;
  using Nonce = std::array<std::byte, 12>;

  /// Writes a value that is derived from the secret. Returns false if OpenSSL fails.
  bool derive(std::string_view label, std::span<std::byte> to) const noexcept;
  bool derive_mask() noexcept;
  /// Derives the key, passes it to `call`, and erases it. Returns false if OpenSSL fails, or if
  /// `call` returns false.
  template <typename Call>
  bool with_key(const Call& call) const noexcept;
  /// `cipher`: null to replace the key of a context, which keeps its memory.
  bool set_key(evp_cipher_ctx_st* context, const evp_cipher_st* cipher) const noexcept;
  /// Starts record `number` with the given header. Returns false if OpenSSL fails.
  bool begin(evp_cipher_ctx_st* context, std::uint64_t number, const std::byte* header) noexcept;

  Use use_;
  SecretBytes secret_;
  Nonce mask_{};  ///< The nonce of a record is this value, XORed with the record's number.
  std::vector<Context> lanes_;
};

}  // namespace mccl::transport::tcp
