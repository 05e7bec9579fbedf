// Tensors as the engine takes them: contiguous memory of a known element type, of the host or a
// GPU.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mccl/buffer.h"
#include "mccl/types.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace mccl_torch {

/// Throws ValueError in Python: "ProcessGroupMCCL::<call>: <what>".
[[noreturn]] void invalid_argument(const char* call, const std::string& what);

/// How elements of a tensor travel: `units` elements of `dtype` each.
struct ElementType {
  mccl::DType dtype = mccl::DType::u8;
  std::size_t units = 1;
};

/// For calls that only move data: types that the engine has no name for travel as bytes.
ElementType movable_type(at::ScalarType type);
/// For calls that compute. Throws when the engine cannot reduce `type` by `op`.
mccl::DType reducible_type(const char* call, at::ScalarType type, const mccl::ReduceOp& op);

mccl::ReduceOp reduce_op_of(const char* call, const c10d::ReduceOp& op);

/// Throws for a tensor that is not in host memory.
void require_host_memory(const char* call, const at::Tensor& tensor);
/// Strided, in host memory or a GPU's.
void require_dense(const char* call, const at::Tensor& tensor);
/// A list of exactly one dense tensor.
at::Tensor& require_single(const char* call, std::vector<at::Tensor>& tensors, const char* role);
/// All dense, of the type of `like` and on its device.
void require_same_type(const char* call, const at::Tensor& like,
                       const std::vector<at::Tensor>& tensors);

/// Everything that a call needs besides its arguments: it keeps tensors alive, holds the contiguous
/// temporaries, and copies them back.
class Staging {
 public:
  explicit Staging(const char* call) : call_(call) {}

  /// Memory to read from.
  mccl::ConstBuffer input(const at::Tensor& tensor, ElementType type);
  /// Memory to write to; what it held before is not needed.
  mccl::Buffer output(const at::Tensor& tensor, ElementType type);
  /// Memory to read and write.
  mccl::Buffer in_place(const at::Tensor& tensor, ElementType type);

  /// The tensors one after another: their own memory where they lie so, else a flat copy.
  mccl::ConstBuffer input(const std::vector<at::Tensor>& tensors, ElementType type);
  mccl::Buffer output(const std::vector<at::Tensor>& tensors, ElementType type);
  mccl::Buffer in_place(const std::vector<at::Tensor>& tensors, ElementType type);

  /// Tensors of several types one after another, as bytes.
  mccl::ConstBuffer input_bytes(const std::vector<at::Tensor>& tensors);
  mccl::Buffer output_bytes(const std::vector<at::Tensor>& tensors);

  /// Copies `in` when it overlaps `out` other than by starting at byte `slot` of it.
  mccl::ConstBuffer apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out, std::size_t slot);
  /// Copies `in` when it overlaps `out` at all.
  mccl::ConstBuffer apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out);

  void keep(const at::Tensor& tensor);
  /// Runs after the copies back.
  void then(std::function<void()> action) { then_ = std::move(action); }

  /// Where the tensors lie, unless that is the host.
  std::optional<c10::Device> device() const { return device_; }
  void lie_on(c10::Device device) { device_ = device; }
  bool has_copies() const { return !copies_.empty() || then_ != nullptr; }
  /// What brings results into the caller's tensors, for whoever has a stream do it instead of
  /// finish().
  std::vector<std::pair<at::Tensor, at::Tensor>> take_copies();

  /// After success, once: results become visible in the caller's tensors.
  void finish();
  /// Forgets everything.
  void release();

 private:
  struct CopyBack {
    at::Tensor destination;
    at::Tensor source;
  };

  at::Tensor flat_temporary(const std::vector<at::Tensor>& tensors);
  mccl::Buffer buffer_of(const at::Tensor& contiguous, ElementType type);

  const char* call_;
  std::vector<at::Tensor> kept_;
  std::optional<c10::Device> device_;
  std::vector<CopyBack> copies_;
  std::function<void()> then_;
};

/// Elements of each tensor, in units of `type`.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, ElementType type);
bool all_equal(const std::vector<std::size_t>& counts);

}  // namespace mccl_torch
