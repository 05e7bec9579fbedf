// Conversion of tensors to the form that the engine takes: contiguous memory of a known element
// type, on the host, a CUDA GPU or a Mac's GPU.
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

/// Representation of one tensor element: `units` elements of `dtype`.
struct ElementType {
  mccl::DType dtype = mccl::DType::u8;
  std::size_t units = 1;
};

/// Element type for calls that only move data. A type that the engine does not know is sent as
/// bytes.
ElementType movable_type(at::ScalarType type);
/// Element type for calls that reduce data. Throws ValueError if the engine cannot reduce `type` by
/// `op`.
mccl::DType reducible_type(const char* call, at::ScalarType type, const mccl::ReduceOp& op);

/// Converts torch's reduction to the engine's. Throws ValueError for an unknown reduction, or for
/// PREMUL_SUM without its factor.
mccl::ReduceOp reduce_op_of(const char* call, const c10d::ReduceOp& op);

/// Throws ValueError unless the tensor is in host memory.
void require_host_memory(const char* call, const at::Tensor& tensor);
/// Throws ValueError unless the tensor is strided and in memory of the host, a CUDA GPU or MPS.
void require_dense(const char* call, const at::Tensor& tensor);
/// Returns the only tensor of the list. Throws ValueError unless the list has exactly one tensor
/// and that tensor is dense.
at::Tensor& require_single(const char* call, std::vector<at::Tensor>& tensors, const char* role);
/// Throws ValueError unless all tensors are dense, with the type and device of `like`.
void require_same_type(const char* call, const at::Tensor& like,
                       const std::vector<at::Tensor>& tensors);

/// The memory of one call: keeps its tensors alive, holds contiguous temporaries, and copies
/// results back from them.
class TensorStaging {
 public:
  explicit TensorStaging(const char* call) : call_(call) {}

  /// Returns memory from which the engine reads the tensor.
  mccl::ConstBuffer input(const at::Tensor& tensor, ElementType type);
  /// Returns memory to which the engine writes the tensor. The old contents may be lost.
  mccl::Buffer output(const at::Tensor& tensor, ElementType type);
  /// Returns memory in which the engine reads and writes the tensor.
  mccl::Buffer in_place(const at::Tensor& tensor, ElementType type);

  /// Like the three functions above, for several tensors: returns the tensors' own memory if they
  /// are consecutive in one storage, otherwise a flat temporary.
  mccl::ConstBuffer input(const std::vector<at::Tensor>& tensors, ElementType type);
  mccl::Buffer output(const std::vector<at::Tensor>& tensors, ElementType type);
  mccl::Buffer in_place(const std::vector<at::Tensor>& tensors, ElementType type);

  /// Like input() and output() for several tensors, which may differ in type. The memory is passed
  /// as bytes, and each tensor is padded to a multiple of 16 bytes.
  mccl::ConstBuffer input_bytes(const std::vector<at::Tensor>& tensors);
  mccl::Buffer output_bytes(const std::vector<at::Tensor>& tensors);

  /// Returns `in`, or a copy if `in` overlaps `out`. Makes no copy if `in` starts at byte `slot` of
  /// `out`, because the engine supports such an in-place call.
  mccl::ConstBuffer apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out, std::size_t slot);
  /// Returns `in`, or a copy if `in` overlaps `out`.
  mccl::ConstBuffer apart_from(mccl::ConstBuffer in, mccl::ConstBuffer out);

  /// Keeps `tensor` alive until release(), and records its device.
  void keep(const at::Tensor& tensor);
  /// Sets an action that finish() runs after the copies.
  void then(std::function<void()> action) { then_ = std::move(action); }

  /// Device of the tensors if it is a CUDA GPU, whose streams can wait for the call.
  std::optional<c10::Device> device() const { return device_; }
  /// True if a tensor is on MPS. The call must then start after a fence has passed, and its results
  /// are ready when the call is over.
  bool on_mps() const { return on_mps_; }
  /// Set the device of a call that has no tensors of its own, such as a barrier or a batch.
  void lie_on_mps() { on_mps_ = true; }
  void lie_on(c10::Device device) { device_ = device; }
  bool has_copies() const { return !copies_.empty() || then_ != nullptr; }
  /// Removes and returns the copies to the caller's tensors, as (destination, source). The caller
  /// of this function then makes the copies in a stream, and finish() does not.
  std::vector<std::pair<at::Tensor, at::Tensor>> take_copies() {
    return std::exchange(copies_, {});
  }

  /// Copies results to the caller's tensors, and then runs the action of then(). Called once, after
  /// success.
  void finish();
  /// Drops all tensors, temporaries and actions.
  void release();

 private:
  /// Memory that was passed to the engine, and the tensor that starts there.
  struct Given {
    const void* data;
    at::Tensor tensor;
  };

  at::Tensor flat_temporary(const std::vector<at::Tensor>& tensors);
  mccl::Buffer buffer_of(const at::Tensor& contiguous, ElementType type);
  mccl::Buffer buffer_at(const at::Tensor& first, std::size_t count, mccl::DType dtype);
  mccl::Buffer buffer_of_consecutive(const std::vector<at::Tensor>& tensors, ElementType type);

  const char* call_;
  std::vector<at::Tensor> kept_;
  std::vector<Given> given_;
  std::optional<c10::Device> device_;
  bool on_mps_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  ///< (destination, source)
  std::function<void()> then_;
};

/// Number of elements of type `type.dtype` in each tensor.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, ElementType type);
bool all_equal(const std::vector<std::size_t>& counts);

}  // namespace mccl_torch
