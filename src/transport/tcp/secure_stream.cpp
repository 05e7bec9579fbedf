#include "transport/tcp/secure_stream.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"
#include "base/would_block.h"
#include "mccl/error.h"

namespace mccl::transport::tcp {
namespace {

/// Approximate number of encrypted bytes per system call. They stay in the cache until that call.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;
/// Number of payload bytes in a full record (RFC 8446, section 5.1).
constexpr std::size_t kRecordBytes = std::size_t{16} << 10;
/// Maximum size in bytes of a full record and a preceding key-update message.
constexpr std::size_t kMostRecordBytes = kRecordBytes + 1024;
/// Maximum number of consecutive records without data. Beyond it, receive() fails with EBADMSG.
constexpr int kMostEmptyRecords = 32;
constexpr std::size_t kOutBytes = kBatchBytes + kMostRecordBytes;

constexpr const char* kClosedEarly = "it closed the connection while encryption was set up";
constexpr const char* kBroke = "the connection broke while encryption was set up";

constexpr std::string_view kIdentity = "mccl";
constexpr std::string_view kProofLabel = "EXPORTER-mccl-proof";

SecureStream& stream_of(BIO* bio) { return *static_cast<SecureStream*>(BIO_get_data(bio)); }

/// Returns the reason why the handshake failed.
std::string reason_of(const SSL* ssl) {
  if (ERR_GET_REASON(ERR_peek_last_error()) != SSL_R_CERTIFICATE_VERIFY_FAILED)
    return "encryption cannot be set up: " + take_openssl_error();
  const long verdict = SSL_get_verify_result(ssl);
  return fmt::format("its certificate is refused: {}", X509_verify_cert_error_string(verdict));
}

int descriptive_errno(int error) { return error != 0 ? error : EPROTO; }

}  // namespace

struct SecureStream::Callbacks {
  /// Copies encrypted bytes from OpenSSL to out_. Accepts no bytes while out_ is full.
  static int write(BIO* bio, const char* bytes, std::size_t count, std::size_t* taken) {
    SecureStream& stream = stream_of(bio);
    BIO_clear_retry_flags(bio);
    const std::size_t room = std::min(count, kOutBytes - stream.out_end_);
    if (room == 0) {
      BIO_set_retry_write(bio);
      return 0;
    }
    std::memcpy(stream.out_.get() + stream.out_end_, bytes, room);
    stream.out_end_ += room;
    *taken = room;
    return 1;
  }

  /// Gives received bytes to OpenSSL. During the handshake, receives only the bytes that OpenSSL
  /// asks for: all others stay in the kernel, so that poll(2) reports them to the next owner of the
  /// socket.
  static int read(BIO* bio, char* to, std::size_t count, std::size_t* got) {
    SecureStream& stream = stream_of(bio);
    BIO_clear_retry_flags(bio);
    const bool is_empty = stream.in_begin_ == stream.in_end_;
    if (is_empty && !stream.is_open_) {
      *got = take(stream, to, count);
    } else {
      if (is_empty) {
        stream.in_begin_ = 0;
        stream.in_end_ = take(stream, stream.in_.get(), kBatchBytes);
      }
      *got = std::min(count, stream.in_end_ - stream.in_begin_);
      std::memcpy(to, stream.in_.get() + stream.in_begin_, *got);
      stream.in_begin_ += *got;
    }
    if (*got == 0 && stream.broken_ == 0) BIO_set_retry_read(bio);
    return *got > 0;
  }

  /// Receives records. Returns 0 if none have arrived, or if the connection has ended.
  static std::size_t take(SecureStream& stream, void* to, std::size_t most) {
    for (;;) {
      const ssize_t got = ::recv(stream.descriptor_, to, most, 0);
      if (got > 0) return static_cast<std::size_t>(got);
      if (got < 0 && errno == EINTR) continue;
      if (got == 0) {
        stream.broken_ = ECONNRESET;
        stream.is_cut_short_ = !stream.has_failed_to_send_;
      } else if (!would_block(errno)) {
        stream.broken_ = errno;
      }
      return 0;
    }
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* method() {
    static const BIO_METHOD* const made = [] {
      BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "mccl");
      if (method == nullptr) return method;
      BIO_meth_set_write_ex(method, &Callbacks::write);
      BIO_meth_set_read_ex(method, &Callbacks::read);
      BIO_meth_set_ctrl(method, &Callbacks::control);
      return method;
    }();
    return made;
  }

  /// Returns the pre-shared key in the form that OpenSSL accepts; null on failure.
  static SSL_SESSION* session(SSL* ssl) {
    const auto& key = static_cast<const SecureStream*>(SSL_get_app_data(ssl))->key_;
    constexpr unsigned char kCipher[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256 (RFC 8446, B.4)
    const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
    SSL_SESSION* session = SSL_SESSION_new();
    if (session != nullptr && cipher != nullptr &&
        SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
      return session;
    }
    SSL_SESSION_free(session);
    return nullptr;
  }

  static int offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                       SSL_SESSION** session_of_key) {
    *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *length = kIdentity.size();
    *session_of_key = session(ssl);
    return *session_of_key != nullptr;
  }

  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t length,
                      SSL_SESSION** session_of_key) {
    *session_of_key = nullptr;
    if (std::string_view(reinterpret_cast<const char*>(identity), length) != kIdentity) return 1;
    *session_of_key = session(ssl);
    return *session_of_key != nullptr;
  }
};

SecureStream::SecureStream(std::shared_ptr<const Encryption> encryption, Role role, const Key& key,
                           int descriptor)
    : encryption_(std::move(encryption)),
      ssl_(nullptr),
      role_(role),
      descriptor_(descriptor),
      process_(::getpid()),
      key_(key),
      out_(std::make_unique_for_overwrite<std::byte[]>(kOutBytes)),
      in_(std::make_unique_for_overwrite<std::byte[]>(kBatchBytes)) {
  BIO* const bio = Callbacks::method() == nullptr ? nullptr : BIO_new(Callbacks::method());
  ssl_ = SSL_new(encryption_->context());
  if (bio == nullptr || ssl_ == nullptr) {
    BIO_free(bio);
    SSL_free(ssl_);
    throw Error("OpenSSL has no memory for an encrypted connection");
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (!encryption_->has_certificates()) {
    // Without authorities, SSL_VERIFY_PEER rejects a certificate in place of the key.
    if (role == Role::client) SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set_psk_use_session_callback(ssl_, &Callbacks::offer_key);
    SSL_set_psk_find_session_callback(ssl_, &Callbacks::find_key);
  }
  role == Role::client ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
}

SecureStream::~SecureStream() {
  if (is_open_ && ::getpid() == process_) (void)end();
  if (outbox_) outbox_->leave(*this);
  SSL_free(ssl_);
  OPENSSL_cleanse(key_.data(), key_.size());
}

void SecureStream::use(std::shared_ptr<Outbox> outbox) {
  outbox->join();
  outbox_ = std::move(outbox);
}

SecureStream::State SecureStream::fail(std::string why) {
  trouble_ = std::move(why);
  (void)flush();  // Sends the TLS alert with the reason to the peer.
  return State::failed;
}

SecureStream::State SecureStream::advance() {
  if (is_open_) {
    const int error = flush();
    if (error != 0 && !would_block(error)) return fail(kBroke);
    return pending() == 0 ? State::open : State::waiting;
  }
  if (!SSL_is_init_finished(ssl_)) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    if (result != 1) {
      const int reason = SSL_get_error(ssl_, result);
      if (broken_ != 0) return fail(kClosedEarly);
      if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) {
        return fail(reason_of(ssl_));
      }
      return would_block(flush()) || pending() == 0 ? State::waiting : fail(kBroke);
    }
  }
  if (!encryption_->has_certificates() && SSL_session_reused(ssl_) != 1)
    return fail("it did not prove that it knows the key of the connection");
  const State confirmed = encryption_->has_certificates() ? confirm() : State::open;
  if (confirmed == State::failed) return confirmed;
  const int error = flush();
  if (error != 0 && !would_block(error)) return fail(kBroke);
  if (confirmed == State::waiting) return confirmed;
  OPENSSL_cleanse(key_.data(), key_.size());
  is_open_ = true;
  return pending() == 0 ? State::open : State::waiting;
}

/// Proves that this end knows the key, and checks the proof of the other end. The proofs cover a
/// value that only the two ends of this TLS connection have.
SecureStream::State SecureStream::confirm() {
  if (!std::exchange(is_proof_sent_, true)) {
    const Key proof = proof_of(role_);
    std::span<const std::byte> rest = proof;
    if (!encrypt(rest) || !rest.empty())
      return fail("the proof that this end knows the key cannot be sent");
  }
  while (proof_received_ < their_proof_.size()) {
    const auto [bytes, error] = receive(std::span(their_proof_).subspan(proof_received_));
    proof_received_ += bytes;
    if (bytes > 0) continue;
    if (would_block(error)) return State::waiting;
    return fail(error == EBADMSG ? reason_of(ssl_) : kClosedEarly);
  }
  const Key expected = proof_of(role_ == Role::client ? Role::server : Role::client);
  if (CRYPTO_memcmp(expected.data(), their_proof_.data(), expected.size()) == 0) return State::open;
  return fail(
      "the encrypted connection and the handshake before it end at different processes; "
      "another process may be intercepting the connection");
}

SecureStream::Key SecureStream::proof_of(Role role) const {
  std::array<unsigned char, kKeyBytes + 1> covered{};
  covered.back() = static_cast<unsigned char>(role);
  Key proof{};
  unsigned int length = 0;
  if (SSL_export_keying_material(ssl_, covered.data(), kKeyBytes, kProofLabel.data(),
                                 kProofLabel.size(), nullptr, 0, 0) != 1 ||
      HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), covered.data(), covered.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr) {
    throw Error(
        "OpenSSL cannot compute the proof that this rank knows the key of an encrypted connection");
  }
  return proof;
}

/// Encrypts one record, and removes its payload from `bytes`. Returns false if TLS has failed.
bool SecureStream::encrypt(std::span<const std::byte>& bytes) {
  ERR_clear_error();
  if (++records_ >= encryption_->records_per_key() && !replace_key()) return false;
  std::size_t written = 0;
  const std::size_t payload = std::min(bytes.size(), kRecordBytes);
  if (SSL_write_ex(ssl_, bytes.data(), payload, &written) != 1) return false;
  bytes = bytes.subspan(written);
  return true;
}

bool SecureStream::replace_key() {
  records_ = 0;
  return SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl_) == 1;
}

TransferResult SecureStream::send(std::span<const std::byte> first,
                                  std::span<const std::byte> second) {
  const std::size_t total = first.size() + second.size();
  int error = flush();
  while (error == 0 && !(first.empty() && second.empty())) {
    while (error == 0 && !(first.empty() && second.empty()) &&
           kOutBytes - out_end_ >= kMostRecordBytes) {
      if (!encrypt(first.empty() ? second : first)) error = descriptive_errno(broken_);
    }
    if (error == 0) error = flush();
  }
  // If some bytes were accepted before an error, the next call reports the error.
  const std::size_t accepted = total - first.size() - second.size();
  return {accepted, accepted > 0 ? 0 : error};
}

int SecureStream::flush() noexcept {
  while (out_begin_ < out_end_) {
    const ssize_t sent = ::send(descriptor_, out_.get() + out_begin_, pending(), kNoSignal);
    if (sent >= 0) {
      out_begin_ += static_cast<std::size_t>(sent);
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (!would_block(error)) has_failed_to_send_ = true;
    if (outbox_ && would_block(error)) outbox_->wait(*this);
    return error;
  }
  out_begin_ = out_end_ = 0;
  return 0;
}

TransferResult SecureStream::receive(std::span<std::byte> to) {
  std::size_t got = 0;
  int empty_records = 0;
  // Stops when all records that one system call received are decrypted.
  while (got < to.size() && !has_ended() && (got == 0 || has_input())) {
    std::size_t bytes = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_, to.data() + got, to.size() - got, &bytes);
    got += bytes;
    if (result == 1) {
      empty_records = 0;
      continue;
    }
    const int error = error_of(result);
    if (!would_block(error)) continue;
    if (!has_input()) return {got, got > 0 ? 0 : error};
    // Without this limit, a peer that sends only key updates would occupy this thread forever.
    if (++empty_records > kMostEmptyRecords) broken_ = EBADMSG;
  }
  return {got, got > 0 ? 0 : broken_};
}

int SecureStream::error_of(int result) {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      is_over_ = true;
      return 0;
    default:
      if (broken_ == 0) broken_ = EBADMSG;
      return broken_;
  }
}

std::size_t SecureStream::buffer_bytes() { return kOutBytes + kBatchBytes; }

bool SecureStream::has_input() const { return in_begin_ < in_end_ || SSL_pending(ssl_) > 0; }

int SecureStream::end() noexcept {
  if (!std::exchange(has_said_end_, true)) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_);
  }
  return flush();
}

void Outbox::join() {
  waiting_.reserve(members_ + 1);
  ++members_;
}

void Outbox::leave(const SecureStream& stream) noexcept {
  std::erase(waiting_, &stream);
  --members_;
}

void Outbox::wait(SecureStream& stream) noexcept {
  if (std::ranges::find(waiting_, &stream) != waiting_.end()) return;
  waiting_.push_back(&stream);
  has_unwatched_ = true;
}

void Outbox::watch(std::vector<pollfd>& descriptors) {
  has_unwatched_ = false;
  for (const SecureStream* each : waiting_) descriptors.push_back({each->descriptor(), POLLOUT, 0});
}

void Outbox::flush() noexcept {
  std::erase_if(waiting_, [](SecureStream* each) {
    const int error = each->flush();
    nap_if_memory_is_short(error);
    return !would_block(error);
  });
  if (waiting_.empty()) has_unwatched_ = false;
}

}  // namespace mccl::transport::tcp
