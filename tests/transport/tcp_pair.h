// Two ends of a TCP connection inside one process, plain and encrypted.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "mccl/error.h"
#include "transport/tcp/encryption.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/secure_stream.h"
#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

using SocketPair = std::pair<Socket, Socket>;

inline SocketPair connected_sockets(const std::string& host) {
  Listener listener(*Address::parse_numeric(host, 0), 0);
  Socket near = Socket::stream(listener.address().family());
  const int error = start_connect(near, listener.address(), nullptr);
  if (error != 0 && error != EINPROGRESS)
    throw Error("connect to " + host + ": " + describe_errno(error));
  pollfd waiting = {listener.descriptor(), POLLIN, 0};
  EXPECT_GT(::poll(&waiting, 1, 20'000), 0);
  Accepted accepted = listener.accept();
  pollfd connecting = {near.descriptor(), POLLOUT, 0};
  EXPECT_GT(::poll(&connecting, 1, 20'000), 0);
  EXPECT_EQ(near.take_error(), 0);
  tune_stream(near);
  return {std::move(near), std::move(accepted.socket)};
}

inline SecureStream::Key test_key(std::byte fill = std::byte{5}) {
  SecureStream::Key key;
  key.fill(fill);
  return key;
}

using Shared = std::shared_ptr<const Encryption>;

/// Gives an end of a connection an encrypted stream, whose handshake has not begun.
inline void encrypt(Socket& end, SecureStream::Role role, const Shared& encryption,
                    const SecureStream::Key& key = test_key()) {
  end.encrypt(std::make_unique<SecureStream>(encryption, role, key, end.descriptor()));
}

struct Outcome {
  SecureStream::State near;
  SecureStream::State far;
};

/// Runs the handshake until neither end waits, or until one has failed and the other cannot go on.
inline Outcome shake_hands(const SocketPair& ends) {
  using State = SecureStream::State;
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(20);
  Outcome outcome{State::waiting, State::waiting};
  const auto goes_on = [](State state) { return state == State::waiting; };
  while (Clock::now() < limit && (goes_on(outcome.near) || goes_on(outcome.far))) {
    if (goes_on(outcome.near)) outcome.near = ends.first.secure()->advance();
    if (goes_on(outcome.far)) outcome.far = ends.second.secure()->advance();
  }
  return outcome;
}

/// `of_far`: the encryption of the second end; null for that of the first.
inline SocketPair encrypted_sockets(const std::string& host, const Shared& encryption,
                                    const Shared& of_far = nullptr) {
  SocketPair ends = connected_sockets(host);
  encrypt(ends.first, SecureStream::Role::client, encryption);
  encrypt(ends.second, SecureStream::Role::server, of_far ? of_far : encryption);
  const Outcome outcome = shake_hands(ends);
  EXPECT_EQ(outcome.near, SecureStream::State::open) << ends.first.secure()->trouble();
  EXPECT_EQ(outcome.far, SecureStream::State::open) << ends.second.secure()->trouble();
  return ends;
}

}  // namespace mccl::transport::tcp
