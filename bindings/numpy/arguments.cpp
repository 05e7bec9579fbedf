#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>

#include "numpy/arguments.h"

namespace mccl::numpy {
namespace {

std::string quoted(nb::handle object) { return nb::repr(object).c_str(); }

std::optional<ReduceKind> kind_named(nb::handle name) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &length);
  if (text == nullptr) throw nb::python_error();
  for (int i = 0; i < kReduceKindCount; ++i) {
    const auto kind = static_cast<ReduceKind>(i);
    if (name_of(kind) == std::string_view(text, static_cast<std::size_t>(length))) return kind;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_op(const char* call, nb::handle op) {
  std::string names;
  for (int i = 0; i < kReduceKindCount; ++i) {
    const auto kind = static_cast<ReduceKind>(i);
    if (kind != ReduceKind::premul_sum) names += fmt::format("\"{}\", ", name_of(kind));
  }
  throw InvalidArgument(fmt::format("{}: op is {}; expected one of {}or (\"premul_sum\", factor)",
                                    call, quoted(op), names));
}

}  // namespace

ReduceOp reduce_op(const char* call, nb::handle op) {
  if (PyUnicode_Check(op.ptr())) {
    const std::optional<ReduceKind> kind = kind_named(op);
    if (kind && *kind != ReduceKind::premul_sum) return *kind;
  } else if (nb::isinstance<nb::tuple>(op) && nb::len(op) == 2 && PyUnicode_Check(op[0].ptr())) {
    const double factor = PyFloat_AsDouble(nb::object(op[1]).ptr());
    if (factor == -1 && PyErr_Occurred()) throw nb::python_error();
    if (kind_named(op[0]) == ReduceKind::premul_sum) return {ReduceKind::premul_sum, factor};
  }
  refuse_op(call, op);
}

std::optional<Compression> compression_of(const char* call, nb::handle compression) {
  if (compression.is_none()) return std::nullopt;
  if (PyUnicode_Check(compression.ptr()))
    return compression_named(nb::cast<std::string>(compression));
  if (nb::isinstance<nb::tuple>(compression) && nb::len(compression) == 2 &&
      PyUnicode_Check(compression[0].ptr())) {
    const double ratio = PyFloat_AsDouble(nb::object(compression[1]).ptr());
    if (ratio == -1 && PyErr_Occurred()) throw nb::python_error();
    const auto found = compression_named(nb::cast<std::string>(compression[0]), ratio);
    if (found.codec == Codec::topk) return found;
  }
  throw InvalidArgument(
      fmt::format("{}: compression is {}; expected the name of a codec, (\"topk\", ratio) or None",
                  call, nb::repr(compression).c_str()));
}

Timeout timeout_of(const char* call, nb::handle seconds) {
  constexpr double kLongest = 365.0 * 24 * 3600;
  if (seconds.is_none()) return std::nullopt;
  const double value = PyFloat_AsDouble(seconds.ptr());
  const bool is_number = value != -1 || !PyErr_Occurred();
  if (is_number && value > 0) {
    if (value > kLongest) return std::chrono::milliseconds(0);
    return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(value));
  }
  if (!is_number) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
  }
  const std::string text = fmt::format(
      "{}: timeout is {}; expected seconds above 0, None for the group's timeout, or math.inf for "
      "no limit",
      call, quoted(seconds));
  if (is_number) throw InvalidArgument(text);
  throw nb::type_error(text.c_str());
}

std::uint32_t tag_of(const char* call, std::int64_t tag) {
  if (tag >= 0 && tag <= std::numeric_limits<std::uint32_t>::max())
    return static_cast<std::uint32_t>(tag);
  throw InvalidArgument(fmt::format("{}: tag is {}; expected 0 to {}", call, tag,
                                    std::numeric_limits<std::uint32_t>::max()));
}

std::vector<std::size_t> counts_of(const char* call, const char* argument, nb::handle counts,
                                   int size) {
  std::vector<std::size_t> found;
  for (const nb::handle count : counts) {
    const nb::object number = nb::steal(PyNumber_Index(count.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    const Py_ssize_t value = PyLong_AsSsize_t(number.ptr());
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    if (value < 0) {
      throw InvalidArgument(fmt::format(
          "{}: {} contains {}; every number of rows must be at least 0", call, argument, value));
    }
    found.push_back(static_cast<std::size_t>(value));
  }
  if (found.size() == static_cast<std::size_t>(size)) return found;
  throw InvalidArgument(fmt::format("{}: {} has {} numbers; expected one for each of the {} ranks",
                                    call, argument, found.size(), size));
}

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::vector<std::size_t> times(std::vector<std::size_t> counts, std::size_t factor) {
  for (std::size_t& count : counts) count *= factor;
  return counts;
}

}  // namespace mccl::numpy
