// Exceptions of the library. Every message names the rank, the peer and the call if they are known,
// what was expected and found, and what to do next.
#pragma once

#include <stdexcept>
#include <string>

namespace mccl {

/// Base class of all errors of the library; thrown itself if none of the classes below applies.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument, setting, file or variable is wrong. Nothing was sent; the group goes on.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A call outlived its timeout.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// A peer died, left, or cannot be reached.
class PeerError : public Error {
 public:
  using Error::Error;
};

/// Ranks called different things, or sent sizes that do not match.
class MismatchError : public Error {
 public:
  using Error::Error;
};

/// The group was aborted or shut down, here or on another rank.
class AbortedError : public Error {
 public:
  using Error::Error;
};

/// Bytes from a peer failed a check (checksum, framing): the network or a peer is broken.
class CorruptionError : public Error {
 public:
  using Error::Error;
};

}  // namespace mccl
