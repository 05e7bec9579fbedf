#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "numpy/array.h"
#include "python/capsule.h"

namespace mccl::numpy {
namespace {

/// Struct that NumPy's `__array_struct__` points to; see
/// https://numpy.org/doc/stable/reference/arrays.interface.html
struct ArrayInterface {
  int two;
  int dimensions;
  char kind;
  int item_bytes;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* description;
};
static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));

/// The first members of NumPy's PyArray_Descr and PyArrayObject, which NumPy 1.7 to 2 have in
/// common; see https://numpy.org/doc/stable/reference/c-api/types-and-structures.html. Reading them
/// saves the three allocations that `__array_struct__` costs. load_numpy() checks the layout.
struct Description {
  PyObject_HEAD PyObject* type;
  char kind;
  char character;
  char byte_order;
  char former_flags;
  int number;
};
struct ArrayObject {
  PyObject_HEAD void* data;
  int dimensions;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  PyObject* base;
  Description* description;
  int flags;
};

constexpr int kContiguous = 0x1;
constexpr int kNotSwapped = 0x200;
constexpr int kWritable = 0x400;

constexpr const char* kExpectedTypes =
    "bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64, complex64 or "
    "complex128, in this machine's byte order";

/// NumPy's objects, looked up once. Never destroyed, because the interpreter ends first.
struct NumPy {
  PyObject* array_type = nullptr;
  PyObject* generic_type = nullptr;
  PyObject* empty = nullptr;
  PyObject* asarray = nullptr;
  PyObject* ascontiguousarray = nullptr;
  PyObject* array_struct = nullptr;  ///< The interned string "__array_struct__".
  std::array<PyObject*, kDTypeCount> types{};
  bool has_known_layout = false;  ///< True if arrays have the layout of ArrayObject.
};

NumPy numpy;

/// NumPy's names of the types, in the order of DType. bfloat16 is defined by the package ml_dtypes.
constexpr std::array<const char*, kDTypeCount> kTypeNames = {
    "bool",  "uint8",   "int8",     "uint16",  "int16",   "uint32",    "int32",     "uint64",
    "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};

std::string class_name(nb::handle object) {
  return nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()))).attr("__name__"))
      .c_str();
}

std::string text_of(Shape shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

/// NumPy's kind of each type, in the order of DType. NumPy has no kind for bfloat16; 'B' stands for
/// the bfloat16 of DLPack.
constexpr std::string_view kKinds = "buiuiuiuifBffcc";
static_assert(kKinds.size() == kDTypeCount);

std::optional<DType> dtype_of(char kind, int item_bytes) {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (kKinds[i] == kind && size_of(dtype) == static_cast<std::size_t>(item_bytes)) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  // The kinds in the order of DLPack's codes; no type has the kind '-', an opaque handle.
  constexpr std::string_view kKindOfCode = "iuf-Bcb";
  if (dtype.lanes != 1 || dtype.code >= kKindOfCode.size()) return std::nullopt;
  return dtype_of(kKindOfCode[dtype.code], dtype.bits / 8);
}

bool is_array(nb::handle x) {
  return PyObject_TypeCheck(x.ptr(), reinterpret_cast<PyTypeObject*>(numpy.array_type));
}

/// True for a NumPy scalar. It cannot be an output, because its memory is a copy of its value.
bool is_scalar(nb::handle x) {
  return PyObject_TypeCheck(x.ptr(), reinterpret_cast<PyTypeObject*>(numpy.generic_type));
}

/// Returns the type of an array whose kind and item size do not determine it, such as bfloat16.
/// Throws InvalidArgument for an unsupported type.
DType unusual_dtype(const char* call, nb::handle array, const ArrayInterface& found) {
  const nb::object dtype = array.attr("dtype");
  const std::string name = nb::str(nb::handle(dtype)).c_str();
  if (found.item_bytes == 2 && name == kTypeNames[static_cast<std::size_t>(DType::bf16)])
    return DType::bf16;
  throw InvalidArgument(
      fmt::format("{}: the dtype of the array is {}; expected {}", call, name, kExpectedTypes));
}

/// Returns the type that NumPy's number of a type stands for, if it is one of C's types in this
/// machine's byte order.
std::optional<DType> dtype_of(const Description& description) {
  using enum DType;
  static_assert(sizeof(long) == 8);
  constexpr DType kOf[] = {boolean, i8,  u8,  i16, u16, i32, u32,
                           i64,     u64, i64, u64, f32, f64};  // NPY_BOOL to NPY_DOUBLE
  if (description.byte_order != '=' && description.byte_order != '|') return std::nullopt;
  if (description.number < 0 || description.number >= static_cast<int>(std::size(kOf)))
    return std::nullopt;
  return kOf[description.number];
}

/// Returns numpy_view() of an array of a common type, and nullopt for any other array.
std::optional<Array> quick_view(nb::handle array, bool& contiguous) {
  if (!numpy.has_known_layout || !is_array(array)) return std::nullopt;
  const auto& found = *reinterpret_cast<const ArrayObject*>(array.ptr());
  const std::optional<DType> dtype = dtype_of(*found.description);
  if (!dtype) return std::nullopt;
  contiguous = found.flags & kContiguous;
  return Array{.object = nb::borrow(array),
               .memory = nb::borrow(array),
               .data = found.data,
               .shape = {found.shape, static_cast<std::size_t>(found.dimensions)},
               .dtype = *dtype,
               .writable = (found.flags & kWritable) != 0};
}

/// Returns a view of a NumPy array's memory, with any strides. Sets `contiguous` to true if the
/// memory is in C order.
Array numpy_view(const char* call, nb::handle array, bool& contiguous) {
  if (std::optional<Array> quick = quick_view(array, contiguous)) return std::move(*quick);
  Array view;
  view.object = nb::borrow(array);
  view.memory = nb::steal(PyObject_GetAttr(array.ptr(), numpy.array_struct));
  if (!view.memory.is_valid()) throw nb::python_error();
  const auto* found =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(view.memory.ptr(), nullptr));
  if (found == nullptr || found->two != 2) throw nb::python_error();
  const std::optional<DType> dtype =
      found->flags & kNotSwapped ? dtype_of(found->kind, found->item_bytes) : std::nullopt;
  view.dtype = dtype ? *dtype : unusual_dtype(call, array, *found);
  view.data = found->data;
  view.shape = {found->shape, static_cast<std::size_t>(found->dimensions)};
  view.writable = found->flags & kWritable;
  contiguous = found->flags & kContiguous;
  return view;
}

/// Copies strided elements to memory in C order, and advances `to`. Strides are in elements.
void copy_strided(std::byte*& to, const std::byte* from, Shape shape, Shape strides,
                  std::size_t item_bytes) {
  if (shape.empty()) {
    std::memcpy(to, from, item_bytes);
    to += item_bytes;
    return;
  }
  for (Py_ssize_t i = 0; i < shape[0]; ++i) {
    copy_strided(to, from + i * strides[0] * static_cast<Py_ssize_t>(item_bytes), shape.subspan(1),
                 strides.subspan(1), item_bytes);
  }
}

bool in_c_order(Shape shape, Shape strides) {
  Py_ssize_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

/// Returns a view of memory that another library shares through DLPack. `Tensor` determines whether
/// the memory must be writable.
template <typename Tensor>
Array dlpack_view(const char* call, nb::handle x, Shape& strides) {
  Tensor tensor;
  if (!nb::try_cast(x, tensor)) {
    // If the other library refuses to export the array, this raises its error.
    x.attr("__dlpack__")();
    throw InvalidArgument(
        fmt::format("{}: the memory of this {} cannot be used: it is not in host memory, or not "
                    "writable; copy it to a NumPy array",
                    call, class_name(x)));
  }
  const std::optional<DType> dtype = dtype_of(tensor.dtype());
  if (!dtype) {
    throw InvalidArgument(
        fmt::format("{}: the elements of this {} have DLPack type code {} and {} bits; expected {}",
                    call, class_name(x), tensor.dtype().code, tensor.dtype().bits, kExpectedTypes));
  }
  Array view;
  view.object = nb::borrow(x);
  view.dtype = *dtype;
  // Memory that is shared read-only is never written, because `writable` is false for it.
  view.data = const_cast<void*>(static_cast<const void*>(tensor.data()));
  view.shape = {reinterpret_cast<const Py_ssize_t*>(tensor.shape_ptr()), tensor.ndim()};
  strides = {reinterpret_cast<const Py_ssize_t*>(tensor.stride_ptr()), tensor.ndim()};
  view.writable = !Tensor::ReadOnly;
  view.memory = python::capsule_of(std::move(tensor));
  return view;
}

/// True if the members of ArrayObject and Description have the values that `__array_struct__` and
/// `dtype` report for an array of three numbers of each type.
bool has_known_layout() {
  const nb::object zeros = nb::module_::import_("numpy").attr("zeros");
  for (std::size_t i = 0; i < numpy.types.size(); ++i) {
    if (numpy.types[i] == nullptr) continue;
    const nb::object array = zeros(3, nb::handle(numpy.types[i]));
    const nb::object capsule = array.attr("__array_struct__");
    const auto& told =
        *static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    const auto& found = *reinterpret_cast<const ArrayObject*>(array.ptr());
    if (found.data != told.data || found.dimensions != 1 || found.shape[0] != 3 ||
        found.strides[0] != told.item_bytes || found.base != nullptr ||
        reinterpret_cast<PyObject*>(found.description) != nb::object(array.attr("dtype")).ptr())
      return false;
    const int known = kContiguous | kWritable;
    if ((found.flags & known) != (told.flags & known)) return false;
    const std::optional<DType> dtype = dtype_of(*found.description);
    if (found.description->kind != told.kind || (dtype && *dtype != static_cast<DType>(i)))
      return false;
  }
  return true;
}

bool lends_dlpack(nb::handle x) { return nb::hasattr(x, "__dlpack__"); }

/// A NumPy array over an object with the buffer protocol, such as a bytearray.
nb::object array_of_buffer(nb::handle x) {
  return nb::borrow(numpy.asarray)(nb::steal(PyMemoryView_FromObject(x.ptr())));
}

nb::object dtype_object(DType dtype) {
  PyObject*& known = numpy.types[static_cast<std::size_t>(dtype)];
  if (known == nullptr) {
    try {
      const nb::object bfloat16 = nb::module_::import_("ml_dtypes").attr("bfloat16");
      known = nb::module_::import_("numpy").attr("dtype")(bfloat16).release().ptr();
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_ImportError)) throw;
      throw InvalidArgument("NumPy has no bfloat16: install ml_dtypes, or pass an array as out=");
    }
  }
  return nb::borrow(known);
}

}  // namespace

std::size_t Array::count() const {
  std::size_t product = 1;
  for (const Py_ssize_t length : shape) product *= static_cast<std::size_t>(length);
  return product;
}

std::size_t Array::row() const {
  std::size_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= static_cast<std::size_t>(shape[i]);
  return product;
}

void load_numpy() {
  const nb::module_ module = nb::module_::import_("numpy");
  const auto take = [&module](const char* name) {
    return nb::object(module.attr(name)).release().ptr();
  };
  numpy.array_type = take("ndarray");
  numpy.generic_type = take("generic");
  numpy.empty = take("empty");
  numpy.asarray = take("asarray");
  numpy.ascontiguousarray = take("ascontiguousarray");
  numpy.array_struct = PyUnicode_InternFromString("__array_struct__");
  const nb::object dtype = module.attr("dtype");
  for (std::size_t i = 0; i < numpy.types.size(); ++i) {
    if (i != static_cast<std::size_t>(DType::bf16))
      numpy.types[i] = dtype(kTypeNames[i]).release().ptr();
  }
  numpy.has_known_layout = has_known_layout();
}

Array input_array(const char* call, nb::handle x) {
  bool contiguous = true;
  if (is_array(x) || is_scalar(x)) {
    Array view = numpy_view(call, x, contiguous);
    if (contiguous) return view;
    return numpy_view(call, nb::borrow(numpy.ascontiguousarray)(x), contiguous);
  }
  if (lends_dlpack(x)) {
    Shape strides;
    Array view = dlpack_view<nb::ndarray<nb::ro, nb::device::cpu>>(call, x, strides);
    if (in_c_order(view.shape, strides)) return view;
    Array copy = new_array(view.dtype, view.shape);
    auto* to = static_cast<std::byte*>(copy.data);
    copy_strided(to, static_cast<const std::byte*>(view.data), view.shape, strides,
                 size_of(view.dtype));
    return copy;
  }
  const bool has_buffer = PyObject_CheckBuffer(x.ptr()) != 0;
  return input_array(call, has_buffer ? array_of_buffer(x) : nb::borrow(numpy.asarray)(x));
}

Array output_array(const char* call, nb::handle out) {
  bool contiguous = true;
  Array view;
  if (is_array(out)) {
    view = numpy_view(call, out, contiguous);
  } else if (lends_dlpack(out)) {
    Shape strides;
    view = dlpack_view<nb::ndarray<nb::device::cpu>>(call, out, strides);
    contiguous = in_c_order(view.shape, strides);
  } else if (PyObject_CheckBuffer(out.ptr()) && !is_scalar(out)) {
    view = numpy_view(call, array_of_buffer(out), contiguous);
    view.object = nb::borrow(out);
  } else {
    throw InvalidArgument(fmt::format("{}: out is a {}; expected an array", call, class_name(out)));
  }
  if (!contiguous) {
    throw InvalidArgument(
        fmt::format("{}: out of shape {} is not in C order; pass a contiguous array, or omit out= "
                    "and use the returned array",
                    call, text_of(view.shape)));
  }
  if (!view.writable)
    throw InvalidArgument(fmt::format("{}: out is read-only; pass a writable array", call));
  return view;
}

Array output_array(const char* call, nb::handle out, DType dtype, Shape shape) {
  Array view = output_array(call, out);
  const bool same_shape =
      std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end());
  if (view.dtype == dtype && same_shape) return view;
  throw InvalidArgument(fmt::format("{}: out is {} of shape {}; expected {} of shape {}", call,
                                    kTypeNames[static_cast<std::size_t>(view.dtype)],
                                    text_of(view.shape),
                                    kTypeNames[static_cast<std::size_t>(dtype)], text_of(shape)));
}

Array new_array(DType dtype, Shape shape) {
  const nb::object lengths = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SET_ITEM(lengths.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromSsize_t(shape[i]));
  }
  const nb::object type = dtype_object(dtype);
  PyObject* arguments[] = {lengths.ptr(), type.ptr()};
  const nb::object made = nb::steal(PyObject_Vectorcall(numpy.empty, arguments, 2, nullptr));
  if (!made.is_valid()) throw nb::python_error();
  bool contiguous = true;
  return numpy_view("empty", made, contiguous);
}

Array result_array(const char* call, nb::handle out, DType dtype, Shape shape) {
  return out.is_none() ? new_array(dtype, shape) : output_array(call, out, dtype, shape);
}

std::vector<Py_ssize_t> with_rows(Shape shape, std::size_t rows) {
  std::vector<Py_ssize_t> changed(shape.begin(), shape.end());
  if (changed.empty()) changed.push_back(1);
  changed[0] = static_cast<Py_ssize_t>(rows);
  return changed;
}

}  // namespace mccl::numpy
