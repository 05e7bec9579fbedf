#include "engine/calls/failure.h"

#include <fmt/format.h>

#include <new>

#include "mccl/error.h"

namespace mccl::engine {
namespace {

/// This text is so short that a std::string holds it without allocating memory.
constexpr const char* kOutOfMemory = "out of memory";

bool is_any_message(const Call& call) {
  return call.collective == Collective::send && call.peer < 0;
}

std::string name_of_place(const Call& call) {
  return is_any_message(call) ? "a message" : describe(call);
}

/// True if `call` is the call in which the failure was detected, as far as this rank can know.
/// `here` is true if this rank detected the failure.
bool is_place(const Failure& failure, const Call& call, bool here) {
  if (!failure.call) return true;
  if (is_any_message(*failure.call)) return here && !is_collective(call);
  return describe(*failure.call) == describe(call);
}

std::exception_ptr caught_bad_alloc() {
  try {
    throw std::bad_alloc();
  } catch (...) {
    return std::current_exception();
  }
}

/// The error with which calls end if there is no memory for an error with a text. It is created at
/// load time, and all calls share it, because the C++ runtime's emergency memory could not hold an
/// exception for each call. The error is made by throw and catch, because make_exception_ptr()
/// needs the vtable of bad_alloc, which is not among the symbols that macOS provides
/// (cmake/macos/libc++.symbols).
const std::exception_ptr kWithoutWords = caught_bad_alloc();

std::string_view advice_for(FailureKind kind) {
  switch (kind) {
    case FailureKind::timeout:
      return "; if ranks may be this late, set a longer timeout (MCCL_TIMEOUT, or the timeout of "
             "the call)";
    case FailureKind::mismatch:
      return "; all ranks must make the same calls in the same order";
    case FailureKind::peer:
      return "; see the last output of that rank";
    case FailureKind::corruption:
    case FailureKind::aborted:
      break;
  }
  return "";
}

}  // namespace

Failure failure_of(const std::exception& error) noexcept {
  FailureKind kind = FailureKind::aborted;
  if (dynamic_cast<const TimeoutError*>(&error)) kind = FailureKind::timeout;
  if (dynamic_cast<const PeerError*>(&error)) kind = FailureKind::peer;
  if (dynamic_cast<const MismatchError*>(&error)) kind = FailureKind::mismatch;
  if (dynamic_cast<const CorruptionError*>(&error)) kind = FailureKind::corruption;
  try {
    if (!dynamic_cast<const std::bad_alloc*>(&error)) return {kind, error.what()};
  } catch (const std::bad_alloc&) {
    // There is no memory for a copy of the error's text. kOutOfMemory needs no allocation.
  }
  return {FailureKind::aborted, kOutOfMemory};
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

std::exception_ptr error_of(const Failure& failure, const Call& call, GroupRank rank,
                            std::string_view verdict) noexcept {
  try {
    return exception_of(failure.kind, describe(failure, call, rank, verdict));
  } catch (const std::bad_alloc&) {
    return kWithoutWords;
  }
}

std::string describe(const Failure& failure) {
  std::string place;
  if (failure.call) place = name_of_place(*failure.call) + " failed";
  if (failure.seen_by.valid()) {
    place += fmt::format("{}on rank {}", place.empty() ? "" : " ", failure.seen_by);
  }
  return fmt::format("{}{}{}{}", place, place.empty() ? "" : ": ", failure.reason,
                     advice_for(failure.kind));
}

std::string describe(const Failure& failure, const Call& call, GroupRank rank,
                     std::string_view verdict) {
  const bool here = !failure.seen_by.valid() || failure.seen_by == rank;
  const bool same = is_place(failure, call, here);
  std::string text = fmt::format("{} on rank {} {}", describe(call), rank, verdict);
  if (failure.kind == FailureKind::mismatch && !here) text += called_at(call);
  if (!here || !same) {
    text += fmt::format(", because {} failed", same ? "it" : name_of_place(*failure.call));
    if (!here) text += fmt::format(" on rank {}", failure.seen_by);
  }
  return fmt::format("{}: {}{}", text, failure.reason, advice_for(failure.kind));
}

}  // namespace mccl::engine
