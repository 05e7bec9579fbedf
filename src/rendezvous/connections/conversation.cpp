#include "rendezvous/connections/conversation.h"

#include <cerrno>

#include "mccl/error.h"

namespace mccl::rendezvous {

namespace {

constexpr std::size_t kMostDiscarded = 4096;

}  // namespace

Conversation::State Conversation::advance() {
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
  if (handshake_.state() == Handshake::State::done) return State::done;
  if (handshake_.state() == Handshake::State::in_progress) return State::waiting;
  trouble_ = handshake_.reason();
  // Closing a socket with unread bytes resets the connection, and some systems then drop the last
  // message to the peer.
  Bytes discarded;
  stream_.receive(discarded, kMostDiscarded);
  return State::refused;
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
