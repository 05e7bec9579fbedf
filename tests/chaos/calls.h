// The calls of a rank of chaos.py that is written in C++. Inputs and results are those of
// traffic.py: small integers, from which every rank computes the results of all ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mccl/mccl.h"

namespace chaos {

/// A call as one line of text: kind, count, dtype, op, root, shift and salt, as in traffic.Call.
struct Call {
  std::string kind;
  std::size_t count = 0;
  std::string dtype;
  std::string op;
  int root = 0;
  int shift = 0;
  int salt = 0;

  static Call from(std::istream& line) {
    Call call;
    line >> call.kind >> call.count >> call.dtype >> call.op >> call.root >> call.shift >>
        call.salt;
    if (!line) throw std::runtime_error("a line of the scenario describes no call");
    return call;
  }

  std::string text() const { return kind + " of " + std::to_string(count) + " " + dtype; }

  bool sums() const { return kind == "all_reduce" || kind == "reduce" || kind == "reduce_scatter"; }
};

inline mccl::DType type_of(const std::string& name) {
  if (name == "u1") return mccl::DType::u8;
  if (name == "i4") return mccl::DType::i32;
  if (name == "i8") return mccl::DType::i64;
  if (name == "f4") return mccl::DType::f32;
  if (name == "f8") return mccl::DType::f64;
  throw std::runtime_error("unknown type " + name);
}

/// Calls `function` with a value of the C++ type of `dtype`.
template <typename Function>
void with_type(mccl::DType dtype, Function function) {
  switch (dtype) {
    case mccl::DType::u8:
      return function(std::uint8_t{});
    case mccl::DType::i32:
      return function(std::int32_t{});
    case mccl::DType::i64:
      return function(std::int64_t{});
    case mccl::DType::f32:
      return function(float{});
    default:
      return function(double{});
  }
}

/// A call in flight. Owns its memory, and must therefore live until the call is done.
class Started {
 public:
  Started(const mccl::Group& group, const Call& call)
      : call_(call),
        type_(type_of(call.dtype)),
        rank_(group.rank()),
        size_(static_cast<std::size_t>(group.size())) {}

  void start(mccl::Group& group, bool caller_waits) {
    mccl::CallOptions options;
    options.caller_waits = caller_waits;
    start(group, options);
  }

  void wait() const {
    for (const mccl::Work& work : works_) work.wait();
  }

  /// Returns how the result differs from the right one; empty if it does not. Elements of sums of
  /// floats may be `rounding` off for each rank.
  std::string fault(double rounding) const {
    const bool rounds = call_.sums() && mccl::is_floating(type_);
    const double limit = rounds ? rounding * static_cast<double>(size_) : 0;
    std::ostringstream text;
    with_type(type_, [&](auto zero) {
      using Element = decltype(zero);
      const auto* found = reinterpret_cast<const Element*>(out_.data());
      for (std::size_t i = 0; i < out_.size() / sizeof(Element); ++i) {
        const int right = expected(i);
        if (std::abs(static_cast<double>(found[i]) - right) <= limit) continue;
        text << call_.text() << ": element " << i << " is " << +found[i] << ", not " << right;
        return;
      }
    });
    return text.str();
  }

  /// Returns a number that is the same on all ranks of an all_reduce; 0 for other calls.
  std::uint32_t digest() const {
    if (call_.kind != "all_reduce") return 0;
    std::uint32_t hash = 2166136261U;
    for (const std::byte each : out_) hash = (hash ^ static_cast<std::uint32_t>(each)) * 16777619U;
    return hash;
  }

  const Call& call() const { return call_; }

 private:
  void start(mccl::Group& group, const mccl::CallOptions& options) {
    const std::size_t count = call_.count, whole = count * size_;
    const bool at_root = rank_ == call_.root;
    const mccl::ReduceOp op = call_.op == "sum"   ? mccl::ReduceKind::sum
                              : call_.op == "max" ? mccl::ReduceKind::max
                                                  : mccl::ReduceKind::min;
    if (call_.kind == "barrier") {
      works_.push_back(group.barrier(options));
    } else if (call_.kind == "message") {
      const int size = static_cast<int>(size_);
      const auto tag = static_cast<std::uint32_t>(call_.salt);
      works_.push_back(group.recv(out(count), (rank_ - call_.shift + size) % size, tag, options));
      works_.push_back(group.send(in(count), (rank_ + call_.shift) % size, tag, options));
    } else if (call_.kind == "all_reduce") {
      works_.push_back(group.all_reduce(in(count), out(count), op, options));
    } else if (call_.kind == "reduce") {
      works_.push_back(group.reduce(in(count), out(at_root ? count : 0), op, call_.root, options));
    } else if (call_.kind == "broadcast") {
      const mccl::Buffer data = out(count);
      if (at_root) fill(out_, count);
      works_.push_back(group.broadcast(data, call_.root, options));
    } else if (call_.kind == "all_gather") {
      works_.push_back(group.all_gather(in(count), out(whole), options));
    } else if (call_.kind == "gather") {
      works_.push_back(group.gather(in(count), out(at_root ? whole : 0), call_.root, options));
    } else if (call_.kind == "scatter") {
      works_.push_back(group.scatter(in(at_root ? whole : 0), out(count), call_.root, options));
    } else if (call_.kind == "reduce_scatter") {
      works_.push_back(group.reduce_scatter(in(whole), out(count), op, options));
    } else if (call_.kind == "all_to_all") {
      works_.push_back(group.all_to_all(in(whole), out(whole), options));
    } else {
      throw std::runtime_error("unknown call " + call_.kind);
    }
  }

  mccl::ConstBuffer in(std::size_t count) {
    fill(in_, count);
    return {in_.data(), count, type_};
  }

  mccl::Buffer out(std::size_t count) {
    out_.resize(count * mccl::size_of(type_));
    return {out_.data(), count, type_};
  }

  void fill(std::vector<std::byte>& memory, std::size_t count) const {
    memory.resize(count * mccl::size_of(type_));
    with_type(type_, [&](auto zero) {
      using Element = decltype(zero);
      auto* data = reinterpret_cast<Element*>(memory.data());
      for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<Element>(given(i, rank_));
    });
  }

  /// Element i of the input of a rank.
  int given(std::size_t i, int rank) const { return static_cast<int>(i % 13) + rank + call_.salt; }

  /// Element i of the reduction of all inputs.
  int reduced(std::size_t i) const {
    const int size = static_cast<int>(size_);
    if (call_.op == "max") return given(i, size - 1);
    if (call_.op == "min") return given(i, 0);
    return size * given(i, 0) + size * (size - 1) / 2;
  }

  /// Element i of this rank's result.
  int expected(std::size_t i) const {
    const std::size_t count = call_.count, mine = static_cast<std::size_t>(rank_) * count;
    const int size = static_cast<int>(size_);
    if (call_.kind == "message") return given(i, (rank_ - call_.shift + size) % size);
    if (call_.kind == "broadcast") return given(i, call_.root);
    if (call_.kind == "scatter") return given(mine + i, call_.root);
    if (call_.kind == "reduce_scatter") return reduced(mine + i);
    if (call_.sums()) return reduced(i);
    const int sender = static_cast<int>(i / count);
    return given(call_.kind == "all_to_all" ? mine + i % count : i % count, sender);
  }

  Call call_;
  mccl::DType type_;
  int rank_;
  std::size_t size_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::vector<mccl::Work> works_;
};

}  // namespace chaos
