#include "rendezvous/connections/conversation.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/would_block.h"
#include "mccl/error.h"

namespace mccl::rendezvous {

Conversation::State Conversation::advance() {
  if (is_encrypted()) return encrypt();
  if (stream_.has_ended()) return State::broken;
  for (Bytes input(1); !input.empty();) {
    stream_.queue(handshake_.output());
    handshake_.sent(handshake_.output().size());
    // Output is sent even if the peer has closed its sending side, because the peer may still read.
    if (!stream_.flush()) return broken();
    if (stream_.has_output()) return State::waiting;
    input.clear();
    stream_.receive(input, handshake_.wanted());
    try {
      handshake_.feed(input);
    } catch (const Error& error) {  // Thrown if OpenSSL cannot make random bytes or an HMAC.
      trouble_ = error.what();
      return State::broken;
    }
  }
  if (stream_.has_ended()) return broken();
  if (handshake_.state() == Handshake::State::done) return encrypt();
  if (handshake_.state() == Handshake::State::in_progress) return State::waiting;
  trouble_ = handshake_.reason();
  // Read the bytes that have arrived. Closing a socket with unread bytes resets the connection, and
  // some systems then drop the last message to the peer.
  constexpr std::size_t kMostDiscarded = 4096;
  Bytes discarded;
  stream_.receive(discarded, kMostDiscarded);
  return State::refused;
}

Conversation::State Conversation::encrypt() {
  using transport::tcp::SecureStream;
  if (!handshake_.encryption()) return State::done;
  try {
    if (!is_encrypted()) {
      const auto role =
          handshake_.is_dialer() ? SecureStream::Role::client : SecureStream::Role::server;
      Proof key = handshake_.connection_key();
      stream_.encrypt(std::make_unique<SecureStream>(handshake_.encryption(), role, key,
                                                     stream_.socket().descriptor()));
      erase(key);
    }
    SecureStream& secure = *stream_.socket().secure();
    switch (secure.advance()) {
      case SecureStream::State::open:
        return State::done;
      case SecureStream::State::waiting:
        return State::waiting;
      case SecureStream::State::failed:
        trouble_ = secure.trouble();
    }
  } catch (const Error& error) {  // Thrown if OpenSSL has no memory.
    trouble_ = error.what();
  }
  return State::broken;
}

Conversation::State Conversation::broken() {
  const int error = stream_.error();
  if (handshake_.state() == Handshake::State::refused) {
    trouble_ = handshake_.reason();
  } else if (error == 0 || error == ECONNRESET || error == EPIPE) {
    trouble_ = handshake_.explain_close();
  } else {
    trouble_ = describe_errno(error);
  }
  return State::broken;
}

void ByteStream::queue(std::span<const std::byte> bytes) {
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent_));
  sent_ = 0;
  append(output_, bytes);
}

bool ByteStream::flush() {
  while (sent_ < output_.size()) {
    const auto [bytes, error] = socket_.send(std::span(output_).subspan(sent_));
    sent_ += bytes;
    nap_if_memory_is_short(error);
    if (error != 0) return is_open_after(error);
  }
  output_ = {};
  sent_ = 0;
  const int error = socket_.flush();
  return error == 0 || is_open_after(error);
}

bool ByteStream::receive(Bytes& to, std::size_t most) {
  std::array<std::byte, 16384> piece;
  while (to.size() < most) {
    const std::size_t limit = std::min(piece.size(), most - to.size());
    const auto [bytes, error] = socket_.receive(std::span(piece).first(limit));
    if (bytes == 0) return is_open_after(error);
    append(to, std::span(piece).first(bytes));
  }
  return true;
}

bool ByteStream::is_open_after(int error) {
  if (would_block(error)) return true;
  ended_ = true;
  error_ = error;
  return false;
}

pollfd ByteStream::watched(bool reads) const {
  const int events = (reads ? POLLIN : 0) | (has_output() ? POLLOUT : 0);
  return {socket_.descriptor(), static_cast<short>(events), 0};
}

}  // namespace mccl::rendezvous
