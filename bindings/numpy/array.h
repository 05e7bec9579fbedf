// Arrays as the library needs them: memory, its shape and its type.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <vector>

#include "mccl/buffer.h"

namespace mccl::numpy {

namespace nb = nanobind;

using Shape = std::span<const Py_ssize_t>;

/// Memory in C order that a Python object owns.
struct Array {
  nb::object object;  ///< What the caller gave, or a NumPy array that was made here.
  nb::object memory;  ///< Keeps `data` and `shape` alive.
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  bool writable = false;

  std::size_t count() const;
  /// Elements of one index of the first axis; 1 for no axis.
  std::size_t row() const;
  Buffer buffer() const { return {data, count(), dtype, {}}; }
};

/// Loads NumPy; throws what importing it throws. Once, before anything else here.
void load_numpy();

/// Any array in host memory (NumPy, DLPack, buffer protocol), or what numpy.asarray takes. Copied
/// where it is not in C order. Throws InvalidArgument that begins with `call`.
Array input_array(const char* call, nb::handle x);

/// An array that can be written: no copy of it would do.
Array output_array(const char* call, nb::handle out);
/// The same, of a type and shape.
Array output_array(const char* call, nb::handle out, DType dtype, Shape shape);

/// A NumPy array of its own memory, with nothing in it.
Array new_array(DType dtype, Shape shape);

/// `out` where it is given, else a new array.
Array result_array(const char* call, nb::handle out, DType dtype, Shape shape);

/// The shape with another number of rows.
std::vector<Py_ssize_t> with_rows(Shape shape, std::size_t rows);

}  // namespace mccl::numpy
