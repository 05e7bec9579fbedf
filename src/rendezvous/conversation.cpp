#include "rendezvous/conversation.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/no_signal.h"
#include "base/would_block.h"
#include "rendezvous/waiting.h"

namespace mccl::rendezvous {

Conversation::Conversation(transport::tcp::Socket socket, Handshake handshake)
    : socket_(std::move(socket)), handshake_(std::move(handshake)) {}

Conversation::State Conversation::advance() {
  // Output is sent even if the peer has closed its side, because it may still read.
  while (!broken_ && flush() && handshake_.wanted() > 0 && receive()) {
  }
  if (broken_) return State::broken;
  if (!handshake_.output().empty()) return State::waiting;
  switch (handshake_.state()) {
    case Handshake::State::in_progress:
      return State::waiting;
    case Handshake::State::done:
      return State::done;
    case Handshake::State::refused:
      trouble_ = handshake_.reason();
      discard_input();
      return State::refused;
  }
  return State::waiting;
}

/// Reads and drops pending input. Closing a socket with unread bytes resets the connection, and
/// some systems then drop the last message to the peer.
void Conversation::discard_input() {
  std::array<std::byte, 4096> buffer;
  (void)::recv(socket_.descriptor(), buffer.data(), buffer.size(), 0);
}

short Conversation::events() const {
  int events = handshake_.wanted() > 0 ? POLLIN : 0;
  if (!handshake_.output().empty()) events |= POLLOUT;
  return static_cast<short>(events);
}

/// Returns true once all output is sent.
bool Conversation::flush() {
  while (!handshake_.output().empty()) {
    const auto bytes = handshake_.output();
    const ssize_t sent = ::send(socket_.descriptor(), bytes.data(), bytes.size(), kNoSignal);
    if (sent >= 0) {
      handshake_.sent(static_cast<std::size_t>(sent));
    } else if (would_block(errno)) {
      nap_if_memory_is_short(errno);
      return false;
    } else if (errno != EINTR) {
      broke(errno);
      return false;
    }
  }
  return true;
}

/// Returns true if bytes were read.
bool Conversation::receive() {
  std::array<std::byte, 4096> buffer;
  const std::size_t limit = std::min(handshake_.wanted(), buffer.size());
  const ssize_t got = ::recv(socket_.descriptor(), buffer.data(), limit, 0);
  if (got > 0) {
    handshake_.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
    return true;
  }
  if (got == 0) {
    broke(0);
  } else if (errno == EINTR) {
    return true;
  } else if (!would_block(errno)) {
    broke(errno);
  }
  return false;
}

Conversation::State Conversation::broke(int error) {
  broken_ = true;
  if (handshake_.state() == Handshake::State::refused) {
    trouble_ = handshake_.reason();
  } else if (error == 0 || error == ECONNRESET || error == EPIPE) {
    trouble_ = handshake_.explain_close();
  } else {
    trouble_ = transport::tcp::describe_errno(error);
  }
  return State::broken;
}

bool converse(Conversation& conversation, Clock::time_point deadline, std::string& trouble) {
  for (;;) {
    switch (conversation.advance()) {
      case Conversation::State::done:
        return true;
      case Conversation::State::refused:
      case Conversation::State::broken:
        trouble = conversation.trouble();
        return false;
      case Conversation::State::waiting:
        break;
    }
    if (!wait_for(conversation.descriptor(), conversation.events(), deadline)) {
      trouble = "no answer in time";
      return false;
    }
  }
}

}  // namespace mccl::rendezvous
