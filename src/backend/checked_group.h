// What every backend's group does first: it checks the arguments of a call and makes a request of
// them.
#pragma once

#include <span>

#include "backend/request.h"
#include "base/coding.h"
#include "mccl/group.h"

namespace mccl {

class CheckedGroup : public Group {
 public:
  Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) final;
  std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                           const CallOptions&) const final;
  Work broadcast(Buffer data, int root, const CallOptions&) final;
  Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, const CallOptions&) final;
  Work all_gather(ConstBuffer in, Buffer out, const CallOptions&) final;
  Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                   const CallOptions&) final;
  Work gather(ConstBuffer in, Buffer out, int root, const CallOptions&) final;
  Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
               const CallOptions&) final;
  Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions&) final;
  Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const CallOptions&) final;
  Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) final;
  Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                       const CallOptions&) final;
  Work all_to_all(ConstBuffer in, Buffer out, const CallOptions&) final;
  Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                   std::span<const std::size_t> out_counts, const CallOptions&) final;
  Work barrier(const CallOptions&) final;
  Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions&) final;
  Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions&) final;

 protected:
  /// Begins what was asked.
  virtual Work start(const Request& request, const CallOptions& options) = 0;
  /// How it travels.
  virtual Coding coding_of(const Request& request, const CallOptions& options) const = 0;

 private:
  Work start_sum(const Request& request, const CallOptions& options);
  // The requests of calls that have an even and an uneven form.
  Request gather_to_all(ConstBuffer in, Buffer out, const Shares& shares) const;
  Request gather_to(ConstBuffer in, Buffer out, const Shares& shares, int root) const;
  Request scatter_from(ConstBuffer in, Buffer out, const Shares& shares, int root) const;
  Request reduce_to_parts(ConstBuffer in, Buffer out, const Shares& shares, ReduceOp op) const;
  Request exchange(ConstBuffer in, const Shares& given, Buffer out, const Shares& taken) const;
};

}  // namespace mccl
