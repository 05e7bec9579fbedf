#include "backend/mpi/group_state.h"

#include "backend/mpi/call.h"
#include "mccl/error.h"

namespace mccl::mpi {

std::exception_ptr exception_of(Kind kind, const std::string& text) {
  switch (kind) {
    case Kind::aborted:
      return std::make_exception_ptr(AbortedError(text));
    case Kind::timeout:
      return std::make_exception_ptr(TimeoutError(text));
    case Kind::peer:
      return std::make_exception_ptr(PeerError(text));
    case Kind::mismatch:
      return std::make_exception_ptr(MismatchError(text));
    case Kind::error:
      break;
  }
  return std::make_exception_ptr(Error(text));
}

Kind kind_of(const std::exception& error) {
  if (dynamic_cast<const TimeoutError*>(&error)) return Kind::timeout;
  if (dynamic_cast<const PeerError*>(&error)) return Kind::peer;
  if (dynamic_cast<const MismatchError*>(&error)) return Kind::mismatch;
  if (dynamic_cast<const AbortedError*>(&error)) return Kind::aborted;
  const auto* of_library = dynamic_cast<const LibraryError*>(&error);
  return of_library && of_library->truncated() ? Kind::mismatch : Kind::error;
}

std::uint64_t GroupState::made() const {
  const std::uint64_t begun = started - waiting.size();
  return bulk && !bulk->working ? begun - 1 : begun;
}

std::string GroupState::failure() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Kind GroupState::failure_kind() const {
  const std::lock_guard lock(mutex_);
  return kind_;
}

bool GroupState::fail(Kind kind, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failed()) return false;
  reason_ = reason;
  kind_ = kind;
  failed_.store(true, std::memory_order_release);
  return true;
}

}  // namespace mccl::mpi
