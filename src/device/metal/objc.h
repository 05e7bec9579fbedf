// Wraps the C interface of the Objective-C runtime, so that no file has to be written in
// Objective-C.
#pragma once

#include <objc/message.h>
#include <objc/runtime.h>

#include <string>

extern "C" {
// Functions of the runtime that no C header declares.
void* objc_autoreleasePoolPush();
void objc_autoreleasePoolPop(void* pool);
void* objc_retain(void* object);
void objc_release(void* object);
}

namespace mccl::device::metal {

using Unsigned = unsigned long;  // NSUInteger

/// Sends a message: [object selector: arguments...]. On arm64 every kind of result is returned in
/// the same way, so one function serves all.
template <typename Result = void, typename... Arguments>
Result send(void* object, const char* selector, Arguments... arguments) {
  const auto call = reinterpret_cast<Result (*)(void*, SEL, Arguments...)>(&objc_msgSend);
  return call(object, sel_registerName(selector), arguments...);
}

inline void* class_named(const char* name) { return reinterpret_cast<void*>(objc_getClass(name)); }

/// An autorelease pool. Its destructor releases the objects that Metal has autoreleased during its
/// lifetime.
class AutoreleasePool {
 public:
  AutoreleasePool() : pool_(objc_autoreleasePoolPush()) {}
  ~AutoreleasePool() { objc_autoreleasePoolPop(pool_); }
  AutoreleasePool(const AutoreleasePool&) = delete;
  AutoreleasePool& operator=(const AutoreleasePool&) = delete;

 private:
  void* const pool_;
};

/// A reference to an object, which its destructor releases. `Owned` takes over a reference that was
/// returned to the caller, as new… and copy… methods do. Owned::retain() adds one to an object that
/// another owner may release.
class Owned {
 public:
  explicit Owned(void* object) : object_(object) {}
  static Owned retain(void* object) { return Owned(objc_retain(object)); }
  ~Owned() { objc_release(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  void* get() const { return object_; }

 private:
  void* const object_;
};

inline std::string text_of(void* string) {
  const char* const text = string ? send<const char*>(string, "UTF8String") : nullptr;
  return text ? text : "no reason given";
}

/// The description of an NSError.
inline std::string reason_of(void* error) {
  return text_of(error ? send<void*>(error, "localizedDescription") : nullptr);
}

/// An NSString that lives until the enclosing pool ends.
inline void* string_of(const std::string& text) {
  return send<void*>(class_named("NSString"), "stringWithUTF8String:", text.c_str());
}

}  // namespace mccl::device::metal
