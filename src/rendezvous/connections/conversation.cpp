#include "rendezvous/connections/conversation.h"

#include <cerrno>

#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

constexpr std::size_t kMostDiscarded = 4096;

}  // namespace

Conversation::State Conversation::advance() {
  if (is_encrypted()) return encrypt();
  if (stream_.has_ended()) return State::broken;
  for (Bytes input(1); !input.empty();) {
    stream_.queue(handshake_.output());
    handshake_.sent(handshake_.output().size());
    // Output is sent even if the peer has closed its side, because it may still read.
    if (!stream_.flush()) return broken();
    if (stream_.has_output()) return State::waiting;
    input.clear();
    stream_.receive(input, handshake_.wanted());
    try {
      handshake_.feed(input);
    } catch (const Error& error) {  // OpenSSL has no randomness or no HMAC.
      trouble_ = error.what();
      return State::broken;
    }
  }
  if (stream_.has_ended()) return broken();
  if (handshake_.state() == Handshake::State::done) return encrypt();
  if (handshake_.state() == Handshake::State::in_progress) return State::waiting;
  trouble_ = handshake_.reason();
  // Closing a socket with unread bytes resets the connection, and some systems then drop the last
  // message to the peer.
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
  } catch (const Error& error) {  // OpenSSL has no memory.
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
    trouble_ = transport::tcp::describe_errno(error);
  }
  return State::broken;
}

}  // namespace mccl::rendezvous
