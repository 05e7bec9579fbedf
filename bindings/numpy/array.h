// Converts NumPy and other arrays to the form that the library needs: memory, shape and type. All
// functions must be called with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <vector>

#include "mccl/buffer.h"

namespace mccl::numpy {

namespace nb = nanobind;

using Shape = std::span<const Py_ssize_t>;

/// Memory in C order, owned by a Python object.
struct Array {
  nb::object object;  ///< The caller's object, or a NumPy array from new_array().
  nb::object memory;  ///< Keeps `data` and `shape` alive.
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  bool writable = false;

  /// Number of elements.
  std::size_t count() const;
  /// Number of elements per index of the first axis; 1 for a scalar.
  std::size_t row() const;
  Buffer buffer() const { return {data, count(), dtype, {}}; }
};

/// Imports NumPy, and throws if that fails. Must be called once, before all other functions here.
void load_numpy();

/// Accepts any array in host memory (NumPy, DLPack, buffer protocol), or an object that
/// numpy.asarray accepts. Copies the elements if they are not in C order. Throws InvalidArgument if
/// the type or the memory is not supported; the message begins with `call`.
Array input_array(const char* call, nb::handle x);

/// Accepts an array to write to: it must be writable and in C order, because a copy would not reach
/// the caller. Throws InvalidArgument otherwise.
Array output_array(const char* call, nb::handle out);
/// Like output_array(call, out), but also requires this type and shape.
Array output_array(const char* call, nb::handle out, DType dtype, Shape shape);

/// A new NumPy array with uninitialised memory. Throws InvalidArgument for bfloat16 if the package
/// ml_dtypes is missing.
Array new_array(DType dtype, Shape shape);

/// Returns output_array() of `out`, or a new array if `out` is None.
Array result_array(const char* call, nb::handle out, DType dtype, Shape shape);

/// `shape` with `rows` as the length of the first axis; (rows,) for a scalar's shape.
std::vector<Py_ssize_t> with_rows(Shape shape, std::size_t rows);

}  // namespace mccl::numpy
