#include "python/call_line.h"

#include <Python.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace mccl::python {
namespace {

/// Maximum number of frames that are searched, from the innermost frame outwards.
constexpr int kMostFrames = 64;

struct Release {
  void operator()(void* object) const { Py_DECREF(static_cast<PyObject*>(object)); }
};
using Object = std::unique_ptr<PyObject, Release>;
using Code = std::unique_ptr<PyCodeObject, Release>;
using Frame = std::unique_ptr<PyFrameObject, Release>;

/// A position in a code object: the index of an instruction.
struct Position {
  PyCodeObject* code;
  int instruction;
  bool operator==(const Position&) const = default;
};
struct Hash {
  std::size_t operator()(const Position& at) const {
    return std::hash<const void*>()(at.code) ^
           static_cast<std::size_t>(at.instruction) * 0x9e3779b1;
  }
};

/// Results of earlier searches for the caller's line: code objects that belong to a library, and
/// the call site at each position. Owns a reference to each code object, because a new code object
/// could otherwise get the same address. Guarded by the GIL.
struct Known {
  std::unordered_set<const PyCodeObject*> is_library;
  std::unordered_map<Position, const CallSite*, Hash> sites;
};

Known& known() {
  // Never freed: Python may have been finalized when static objects are destroyed.
  static Known* const kept = new Known;
  return *kept;
}

std::string_view file_of(const PyCodeObject* code) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? std::string_view()
                         : std::string_view(text, static_cast<std::size_t>(size));
}

/// True if the file is in the folder of the package with this name.
bool is_in_package(std::string_view file, const char* package) {
  PyObject* const name = PyUnicode_FromString(package);
  const Object module(name ? PyImport_GetModule(name) : nullptr);
  Py_XDECREF(name);
  const Object init(module ? PyObject_GetAttrString(module.get(), "__file__") : nullptr);
  const char* const path = init ? PyUnicode_AsUTF8(init.get()) : nullptr;
  PyErr_Clear();
  if (path == nullptr) return false;
  const std::string_view whole(path);
  return file.starts_with(whole.substr(0, whole.rfind('/') + 1));
}

/// True if the code belongs to mccl or torch, or to Python's importing machinery.
bool is_library(const Code& code) {
  if (known().is_library.contains(code.get())) return true;
  const std::string_view file = file_of(code.get());
  const bool result =
      is_in_package(file, "mccl") || is_in_package(file, "torch") || file.starts_with("<frozen");
  // Only code of libraries is stored. With the program's code, the set would grow without limit if
  // the program compiled new code again and again.
  if (!result) return false;
  known().is_library.insert(code.get());
  Py_INCREF(code.get());
  return true;
}

/// Returns the name of the code's file without its folder. Replaces control characters, because
/// errors show the name.
std::string file_name_of(const PyCodeObject* code) {
  const std::string_view path = file_of(code);
  std::string name(path.substr(path.rfind('/') + 1));
  for (char& each : name)
    if (static_cast<unsigned char>(each) < ' ' || each == '\x7f') each = '?';
  return name.empty() ? "?" : name;
}

/// Returns the call site of a frame's current instruction, and stores it for later searches.
const CallSite* find_site(const Position& at, PyFrameObject* frame) {
  const CallSite* const site =
      call_site(file_name_of(at.code) + ":" + std::to_string(PyFrame_GetLineNumber(frame)));
  // The size is limited because a program may compile new code again and again.
  if (known().sites.size() < kMostCallSites) {
    known().sites.emplace(at, site);
    Py_INCREF(at.code);
  }
  return site;
}

}  // namespace

const CallSite* line_of_caller() noexcept {
  try {
    PyFrameObject* const innermost = PyEval_GetFrame();
    Py_XINCREF(innermost);
    Frame frame(innermost);
    for (int depth = 0; frame && depth < kMostFrames; ++depth) {
      const Code code(PyFrame_GetCode(frame.get()));
      const Position at{code.get(), PyFrame_GetLasti(frame.get())};
      const auto found = known().sites.find(at);
      if (found != known().sites.end()) return found->second;
      if (!is_library(code)) return find_site(at, frame.get());
      frame.reset(PyFrame_GetBack(frame.get()));
    }
  } catch (const std::exception&) {
    // Memory has run out. The call is recorded without its line.
  }
  return nullptr;
}

const CallSite* line_of_caller_without_gil() noexcept {
  if (Py_IsInitialized() == 0 || PyGILState_GetThisThreadState() == nullptr) return nullptr;
  const PyGILState_STATE before = PyGILState_Ensure();
  const CallSite* const site = line_of_caller();
  PyGILState_Release(before);
  return site;
}

}  // namespace mccl::python
