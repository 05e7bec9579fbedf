#include "transport/tcp/secure_stream.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/no_signal.h"
#include "base/would_block.h"
#include "transport/tcp/kernel_tls.h"

namespace mccl::transport::tcp {
namespace {

/// Number of bytes of one call from which on threads help.
constexpr std::size_t kWorthThreads = std::size_t{128} << 10;

/// Size in bytes of the type and the size before a message of TLS that waits for the kernel.
constexpr std::size_t kKernelHeaderBytes = 2;
/// Maximum number of bytes of one system call, so that the number of its records is known well
/// before the key's limit.
constexpr std::size_t kMostSentAtOnce = std::size_t{16} << 20;

/// Removes the first `count` bytes of `bytes`, and returns them.
std::span<const std::byte> take(std::span<const std::byte>& bytes, std::size_t count) {
  const auto taken = bytes.first(std::min(count, bytes.size()));
  bytes = bytes.subspan(taken.size());
  return taken;
}

/// True if `error` is no failure of the connection.
bool may_continue(int error) { return error == 0 || would_block(error); }

}  // namespace

SecureStream::SecureStream(std::shared_ptr<const Encryption> encryption, Role role, const Key& key,
                           int descriptor)
    : encryption_(std::move(encryption)),
      role_(role),
      descriptor_(descriptor),
      process_(::getpid()),
      handshake_(std::make_unique<TlsHandshake>(encryption_, role, key, descriptor)),
      out_(kNarrowBytes) {}

SecureStream::~SecureStream() {
  if (is_open() && reader_->broken() == 0 && ::getpid() == process_) (void)end();
  if (outbox_) outbox_->leave(*this);
}

void SecureStream::use(std::shared_ptr<Outbox> outbox) {
  outbox->join();
  outbox_ = std::move(outbox);
  const KernelTls wanted = encryption_->kernel_tls();
  const bool has_threads = outbox_->threads().lanes() > 1;
  if (wanted == KernelTls::always || (wanted == KernelTls::without_threads && !has_threads))
    move_to_kernel();
}

/// If the kernel refuses one direction, it can still be used for the other.
void SecureStream::move_to_kernel() noexcept {
  if (!is_open() || !out_.empty() || !kernel_offers_tls() || !start_kernel_tls(descriptor_)) return;
  is_in_kernel_ = sending_->give_to_kernel(descriptor_, sent_) == 0;
  (void)reader_->move_to_kernel();
}

SecureStream::State SecureStream::fail(std::string why) {
  trouble_ = std::move(why);
  return State::failed;
}

SecureStream::State SecureStream::advance() {
  if (!is_open()) {
    const TlsHandshake::State state = handshake_->advance();
    if (state == TlsHandshake::State::failed) return fail(handshake_->trouble());
    if (state == TlsHandshake::State::waiting) return State::waiting;
    if (!reader_) {
      const Role peer = role_ == Role::client ? Role::server : Role::client;
      sending_.emplace(RecordKeys::Use::seal, handshake_->secret_of(role_));
      reader_.emplace(handshake_->secret_of(peer), descriptor_);
      // Bytes after the proof stay in the kernel, so that poll(2) reports them to the next owner of
      // the socket.
      reader_->read_single_records(true);
      if (encryption_->has_certificates() &&
          !seal_message(ContentType::application_data, handshake_->proof_of(role_)))
        return fail("the proof that this end knows the key cannot be sent");
    }
    if (!may_continue(flush())) return fail(kBrokeEarly);
    if (encryption_->has_certificates()) {
      const State confirmed = confirm();
      if (confirmed != State::open) return confirmed;
    }
    reader_->read_single_records(false);
    handshake_ = nullptr;
  }
  const int error = flush();
  if (!may_continue(error)) return fail(kBrokeEarly);
  return error == 0 ? State::open : State::waiting;
}

/// Checks the proof that the other end knows the key.
SecureStream::State SecureStream::confirm() {
  while (proof_received_ < their_proof_.size()) {
    const auto [bytes, error] = reader_->receive(std::span(their_proof_).subspan(proof_received_));
    proof_received_ += bytes;
    if (bytes > 0) continue;
    if (would_block(error)) return State::waiting;
    if (const std::byte alert = reader_->alert(); alert != kCloseNotify) {
      return fail(
          fmt::format("encryption cannot be set up: it sent the alert \"{}\"", alert_text(alert)));
    }
    return fail(error == EBADMSG ? "it sent an invalid record in place of its proof of the key"
                                 : kClosedEarly);
  }
  const Key expected = handshake_->proof_of(role_ == Role::client ? Role::server : Role::client);
  if (CRYPTO_memcmp(expected.data(), their_proof_.data(), expected.size()) == 0) return State::open;
  return fail(
      "the encrypted connection and the handshake before it end at different processes; "
      "another process may be intercepting the connection");
}

void SecureStream::widen() noexcept {
  if (!outbox_ || is_in_kernel_ || std::exchange(has_tried_to_widen_, true)) return;
  const std::size_t helpers = outbox_->threads().lanes() - 1;
  if (helpers == 0) return;
  try {
    sending_->add_lanes(helpers);
    out_.grow(kWideBytes);
    reader_->widen(helpers);
    threads_ = &outbox_->threads();
  } catch (const std::exception&) {
    // There is no memory. The stream continues as it is.
  }
}

int SecureStream::seal_and_send(std::span<const std::byte>& first,
                                std::span<const std::byte>& second) {
  const std::uint64_t most = encryption_->records_per_key();
  if ((reader_->take_request_for_key() || sent_ >= most) && !replace_key()) return EPROTO;
  CipherThreads* const threads = first.size() + second.size() >= kWorthThreads ? threads_ : nullptr;
  std::size_t count = 0;
  std::size_t placed = 0;
  out_.compact();
  const std::span<std::byte> space = out_.space();
  const std::size_t most_at_once = threads_ != nullptr ? sealing_.size() : kRecordsPerCall;
  while (count < most_at_once && sent_ + count < most &&
         space.size() - placed >= kFullRecordBytes && !(first.empty() && second.empty())) {
    const auto begin = take(first, kRecordPayloadBytes);
    const auto end = take(second, kRecordPayloadBytes - begin.size());
    const std::size_t bytes = kRecordOverhead + begin.size() + end.size();
    sealing_[count++] = {{begin, end}, space.data() + placed, bytes};
    placed += bytes;
  }
  // A number is never used twice, even if this call fails: two records with the same number would
  // reveal their contents.
  first_sealing_ = sent_;
  sent_ += count;
  CipherThreads::Batch batch(threads, count, [this](std::size_t lane, std::size_t index) {
    const Sealing& each = sealing_[index];
    if (!sending_->seal(lane, first_sealing_ + index, ContentType::application_data, each.payload,
                        each.to))
      has_failed_to_seal_ = true;
  });
  // The first records are sent while the others are encrypted.
  int error = 0;
  for (std::size_t done = 0; done < count;) {
    const std::size_t processed = batch.processed();
    if (processed < count && processed - done < kRecordsPerCall) {
      batch.help();
      continue;
    }
    if (has_failed_to_seal_) return EPROTO;
    for (; done < processed; ++done) out_.add(sealing_[done].bytes);
    if (error == 0) error = flush();
  }
  return error;
}

bool SecureStream::seal_message(ContentType type, std::span<const std::byte> message) {
  const std::size_t bytes = (is_in_kernel_ ? kKernelHeaderBytes : kRecordOverhead) + message.size();
  if (out_.empty()) out_.compact();
  const std::span<std::byte> space = out_.space();
  if (has_failed_to_seal_ || space.size() < bytes) return false;
  if (is_in_kernel_) {
    space[0] = static_cast<std::byte>(type);
    space[1] = static_cast<std::byte>(message.size());
    std::ranges::copy(message, space.begin() + kKernelHeaderBytes);
    out_.add(bytes);
    return true;
  }
  if (!sending_->seal(0, sent_++, type, {message, {}}, space.data())) {
    has_failed_to_seal_ = true;
    return false;
  }
  out_.add(bytes);
  return true;
}

bool SecureStream::replace_key() {
  if (!seal_message(ContentType::handshake, kKeyUpdate) ||
      (!is_in_kernel_ && !sending_->replace())) {
    has_failed_to_seal_ = true;
    return false;
  }
  sent_ = 0;
  return true;
}

TransferResult SecureStream::send(std::span<const std::byte> first,
                                  std::span<const std::byte> second) {
  const std::size_t total = first.size() + second.size();
  if (total >= kWorthThreads) widen();
  int error = has_failed_to_seal_ ? EPROTO : flush();
  while (error == 0 && !(first.empty() && second.empty()))
    error = is_in_kernel_ ? send_by_kernel(first, second) : seal_and_send(first, second);
  // If some bytes were accepted before an error, the next call reports the error.
  const std::size_t accepted = total - first.size() - second.size();
  return {accepted, accepted > 0 ? 0 : error};
}

TransferResult SecureStream::receive(std::span<std::byte> to) {
  const bool is_worth_threads = to.size() >= kWorthThreads;
  if (is_worth_threads) widen();
  const TransferResult result = reader_->receive(to, is_worth_threads ? threads_ : nullptr);
  // Tells the peer why the stream ends.
  if (result.error == EBADMSG && !std::exchange(has_said_end_, true)) {
    // A kernel that decrypts has failed the connection, so the next call of send reports this
    // error.
    int failure = 0;
    socklen_t size = sizeof failure;
    if (is_in_kernel_) (void)::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &failure, &size);
    (void)seal_message(ContentType::alert, kBadRecord);
    (void)flush();
  }
  return result;
}

int SecureStream::flush() noexcept {
  int error = 0;
  if (is_in_kernel_) {
    error = flush_to_kernel();
  } else {
    while (!out_.empty() && (error == 0 || error == EINTR)) {
      const ssize_t sent = ::send(descriptor_, out_.bytes().data(), out_.size(), kNoSignal);
      error = sent < 0 ? errno : 0;
      if (sent > 0) out_.take(static_cast<std::size_t>(sent));
    }
  }
  if (error == 0) return 0;
  if (outbox_ && would_block(error)) outbox_->wait(*this);
  return failed_to_send(error);
}

int SecureStream::failed_to_send(int error) noexcept {
  if (!would_block(error) && reader_) reader_->sending_has_failed();
  return error;
}

int SecureStream::send_by_kernel(std::span<const std::byte>& first,
                                 std::span<const std::byte>& second) {
  if (reader_->take_request_for_key() || sent_ >= encryption_->records_per_key()) {
    if (!replace_key()) return EPROTO;
    if (const int error = flush(); error != 0) return error;
  }
  std::array<iovec, 2> pieces;
  std::size_t count = 0;
  for (const std::span<const std::byte> part : {first, second}) {
    if (part.empty()) continue;
    pieces[count++] = {const_cast<std::byte*>(part.data()), std::min(part.size(), kMostSentAtOnce)};
    if (part.size() > kMostSentAtOnce) break;
  }
  msghdr message = {};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(descriptor_, &message, kNoSignal);
  if (sent < 0) return errno == EINTR ? 0 : failed_to_send(errno);
  const auto bytes = static_cast<std::size_t>(sent);
  // The kernel may have begun and ended with a record that is not full.
  sent_ += bytes / kRecordPayloadBytes + 2;
  (void)take(second, bytes - take(first, bytes).size());
  return 0;
}

int SecureStream::flush_to_kernel() noexcept {
  int error = 0;
  while ((!out_.empty() || is_key_due_) && (error == 0 || error == EINTR)) {
    if (is_key_due_) {
      error = sending_->give_to_kernel(descriptor_, 0);
      is_key_due_ = would_block(error) || error == EINTR;
      has_failed_to_seal_ = has_failed_to_seal_ || (error != 0 && !is_key_due_);
      continue;
    }
    const std::span<const std::byte> bytes = out_.bytes();
    const auto type = static_cast<ContentType>(bytes[0]);
    const std::size_t size = std::to_integer<std::size_t>(bytes[1]);
    error =
        send_message_by_kernel(descriptor_, type, bytes.subspan(kKernelHeaderBytes, size)).error;
    if (error != 0) continue;
    out_.take(kKernelHeaderBytes + size);
    // The only handshake message that this end sends announces a new key.
    if (type != ContentType::handshake) continue;
    is_key_due_ = sending_->replace();
    if (!is_key_due_) has_failed_to_seal_ = true;
    if (!is_key_due_) error = EPROTO;
  }
  return error;
}

int SecureStream::end() noexcept {
  if (!has_said_end_) {
    const int error = flush();
    if (error != 0) return error;
    has_said_end_ = true;
    (void)seal_message(ContentType::alert, kEndOfStream);
  }
  return flush();
}

}  // namespace mccl::transport::tcp
