// Exceptions of the library. Every message mentions the rank, the peer and the call if they are
// known, what was expected and found, and what to do next.
#pragma once

#include <stdexcept>
#include <string>

#include "mccl/export.h"

namespace mccl {

/// Base class of all errors of the library. Also thrown for errors to which none of the classes
/// below applies. The library defines what() of every class, because the compiler then emits the
/// class's vtable and typeinfo in the library only. Each process therefore has a single copy of
/// both, even if several libraries throw and catch the class.
class MCCL_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  const char* what() const noexcept override;
};

/// An argument, setting, file or variable is invalid. Nothing was sent, and the group stays usable.
class MCCL_API InvalidArgument : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

/// A call or a wait exceeded its timeout.
class MCCL_API TimeoutError : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

/// A peer died, left, or cannot be reached.
class MCCL_API PeerError : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

/// Calls or settings of two ranks do not match, for example the sizes of a message and its receive.
class MCCL_API MismatchError : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

/// The group was aborted or shut down, here or on another rank.
class MCCL_API AbortedError : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

/// Bytes from a peer failed a check (checksum, framing): the network or a peer is broken.
class MCCL_API CorruptionError : public Error {
 public:
  using Error::Error;
  const char* what() const noexcept override;
};

}  // namespace mccl
