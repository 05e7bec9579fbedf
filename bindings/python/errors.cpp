#include "python/errors.h"

#include <array>
#include <cstddef>

namespace mccl::python {
namespace {

enum class ErrorKind : std::size_t {
  any,
  invalid_argument,
  timeout,
  peer,
  mismatch,
  aborted,
  corruption,
};
constexpr std::array kClassNames = {
    "Error",         "InvalidArgument", "TimeoutError",    "PeerError",
    "MismatchError", "AbortedError",    "CorruptionError",
};

/// The classes of mccl.errors, in the order of ErrorKind. Never released, because errors may be
/// converted as long as the interpreter lives.
std::array<PyObject*, kClassNames.size()> classes{};

PyObject* class_of(ErrorKind kind) { return classes[static_cast<std::size_t>(kind)]; }

/// Calls `raise` with the class and the text of an error of the library; rethrows any other
/// exception.
template <typename Raise>
void with_error_of(const std::exception_ptr& thrown, Raise&& raise) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    raise(ErrorKind::invalid_argument, error.what());
  } catch (const TimeoutError& error) {
    raise(ErrorKind::timeout, error.what());
  } catch (const PeerError& error) {
    raise(ErrorKind::peer, error.what());
  } catch (const MismatchError& error) {
    raise(ErrorKind::mismatch, error.what());
  } catch (const AbortedError& error) {
    raise(ErrorKind::aborted, error.what());
  } catch (const CorruptionError& error) {
    raise(ErrorKind::corruption, error.what());
  } catch (const Error& error) {
    raise(ErrorKind::any, error.what());
  }
}

}  // namespace

void bind_errors() {
  const nb::module_ errors = nb::module_::import_("mccl.errors");
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = nb::object(errors.attr(kClassNames[i])).release().ptr();
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        with_error_of(thrown, [](ErrorKind kind, const char* text) {
          PyErr_SetString(class_of(kind), text);
        });
      },
      nullptr);
}

nb::object python_error_of(const std::exception_ptr& error) {
  nb::object found;
  try {
    with_error_of(error, [&found](ErrorKind kind, const char* text) {
      found = nb::borrow(class_of(kind))(text);
    });
  } catch (const std::exception& other) {
    found = nb::borrow(PyExc_RuntimeError)(other.what());
  }
  return found;
}

}  // namespace mccl::python
