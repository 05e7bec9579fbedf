#include "engine/calls/failure.h"

#include <new>

#include "mccl/error.h"

namespace mccl::engine {

Failure failure_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return {FailureKind::aborted, "it is out of memory"};
  }
  FailureKind kind = FailureKind::aborted;
  if (dynamic_cast<const TimeoutError*>(&error)) kind = FailureKind::timeout;
  if (dynamic_cast<const PeerError*>(&error)) kind = FailureKind::peer;
  if (dynamic_cast<const MismatchError*>(&error)) kind = FailureKind::mismatch;
  if (dynamic_cast<const CorruptionError*>(&error)) kind = FailureKind::corruption;
  return {kind, error.what()};
}

std::exception_ptr exception_of(FailureKind kind, const std::string& message) {
  switch (kind) {
    case FailureKind::timeout:
      return std::make_exception_ptr(TimeoutError(message));
    case FailureKind::peer:
      return std::make_exception_ptr(PeerError(message));
    case FailureKind::mismatch:
      return std::make_exception_ptr(MismatchError(message));
    case FailureKind::corruption:
      return std::make_exception_ptr(CorruptionError(message));
    case FailureKind::aborted:
      break;
  }
  return std::make_exception_ptr(AbortedError(message));
}

}  // namespace mccl::engine
