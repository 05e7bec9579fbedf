#include "exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mlx/allocator.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "mccl/error.h"

namespace mccl_mlx {
namespace {

using enum ExchangeKind;

/// Properties of one kind of exchange.
struct Traits {
  std::string_view name;
  ExchangeKind adjoint;
  bool has_rows;  ///< It divides arrays into rows, and therefore uses ArrayExchange::rows.
  /// It can run on the GPU. Kinds that have a root run on the CPU; for reduce and gather this is
  /// necessary, because they clear the other ranks' output on the host.
  bool runs_on_gpu;
};

const Traits& traits_of(ExchangeKind kind) {
  static constexpr Traits kTraits[] = {
      {"all_sum", all_sum, false, true},       {"all_mean", all_mean, false, true},
      {"broadcast", reduce, false, false},     {"reduce", broadcast, false, false},
      {"all_gather", sum_scatter, true, true}, {"sum_scatter", all_gather, true, true},
      {"gather", scatter, true, false},        {"scatter", gather, true, false},
      {"all_to_all", all_to_all, true, true},
  };
  return kTraits[static_cast<std::size_t>(kind)];
}

int sum(const std::vector<int>& rows) { return std::accumulate(rows.begin(), rows.end(), 0); }

int at(const std::vector<int>& rows, int rank) { return rows[static_cast<std::size_t>(rank)]; }

mx::Shape with_rows(mx::Shape shape, int rows) {
  shape[0] = rows;
  return shape;
}

std::vector<std::size_t> elements_of(const std::vector<int>& rows, std::size_t row) {
  std::vector<std::size_t> counts;
  counts.reserve(rows.size());
  for (const int each : rows) counts.push_back(static_cast<std::size_t>(each) * row);
  return counts;
}

void check_rows(std::string_view name, std::string_view what, const std::vector<int>& rows,
                int size) {
  if (rows.size() != static_cast<std::size_t>(size)) {
    throw mccl::InvalidArgument(fmt::format(
        "{}: {}: expected one number for each of the {} ranks; found {}", name, what, size, rows));
  }
  for (const int each : rows) {
    if (each >= 0) continue;
    throw mccl::InvalidArgument(
        fmt::format("{}: {}: every number of rows must be at least 0; found {}", name, what, rows));
  }
}

/// Number of rows that the array of this rank must have; -1 if every number is valid.
int rows_wanted(const ArrayExchange& exchange, int rank) {
  switch (exchange.kind) {
    case all_gather:
    case gather:
      return at(exchange.rows, rank);
    case sum_scatter:
    case all_to_all:
      return sum(exchange.rows);
    case scatter:
      return rank == exchange.root ? sum(exchange.rows) : -1;
    default:
      return -1;
  }
}

/// Broadcasts root's input, which is not modified. The inputs of the other ranks are unused.
mccl::Work start_broadcast(const ArrayExchange& exchange, mccl::Group& group, mccl::ConstBuffer in,
                           mccl::Buffer out, const mccl::CallOptions& options) {
  mccl::Buffer data = out;
  if (group.rank() == exchange.root) data.data = const_cast<void*>(in.data);
  return group.broadcast(data, exchange.root, options);
}

void clear(mccl::Buffer buffer) {
  if (buffer.count > 0) std::memset(buffer.data, 0, buffer.bytes());
}

mx::Shape output_shape(const ArrayExchange& exchange, const mx::Shape& input, int rank) {
  switch (exchange.kind) {
    case all_gather:
      return with_rows(input, sum(exchange.rows));
    case gather:
      return with_rows(input, rank == exchange.root ? sum(exchange.rows) : exchange.idle_rows);
    case sum_scatter:
    case scatter:
      return with_rows(input, at(exchange.rows, rank));
    case all_to_all:
      return with_rows(input, sum(exchange.from));
    default:
      return input;
  }
}

/// The exchange that maps a cotangent of the output to a cotangent of the input.
ArrayExchange adjoint(const ArrayExchange& exchange, const mx::Shape& input) {
  ArrayExchange result = exchange;
  result.kind = traits_of(exchange.kind).adjoint;
  if (exchange.kind == scatter) result.idle_rows = input[0];
  if (exchange.kind == all_to_all) std::swap(result.rows, result.from);
  return result;
}

/// Starts the engine's call. `row` is the number of elements in a row.
mccl::Work start(const ArrayExchange& exchange, mccl::Group& group, mccl::ConstBuffer in,
                 mccl::Buffer out, std::size_t row, const mccl::CallOptions& options) {
  const std::vector<std::size_t> counts = elements_of(exchange.rows, row);
  const bool is_root = group.rank() == exchange.root;
  switch (exchange.kind) {
    case all_sum:
      return group.all_reduce(in, out, mccl::ReduceKind::sum, options);
    case all_mean:
      return group.all_reduce(in, out, mccl::ReduceKind::avg, options);
    case broadcast:
      return start_broadcast(exchange, group, in, out, options);
    case reduce:
      if (!is_root) clear(out);
      return group.reduce(in, is_root ? out : mccl::Buffer{}, mccl::ReduceKind::sum, exchange.root,
                          options);
    case all_gather:
      return group.all_gatherv(in, out, counts, options);
    case sum_scatter:
      return group.reduce_scatterv(in, out, counts, mccl::ReduceKind::sum, options);
    case gather:
      if (!is_root) clear(out);
      return group.gatherv(in, is_root ? out : mccl::Buffer{}, counts, exchange.root, options);
    case scatter:
      return group.scatterv(is_root ? in : mccl::ConstBuffer{}, out, counts, exchange.root,
                            options);
    case all_to_all:
      return group.all_to_allv(in, counts, out, elements_of(exchange.from, row), options);
  }
  return {};
}

/// An exchange as an operation of MLX's graphs.
class ExchangePrimitive final : public mx::UnaryPrimitive {
 public:
  ExchangePrimitive(mx::Stream stream, std::shared_ptr<MlxGroup> group, ArrayExchange exchange)
      : UnaryPrimitive(stream), group_(std::move(group)), exchange_(std::move(exchange)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    allocate(inputs[0], out);
    run(inputs[0], out);
  }

  void eval_gpu(const std::vector<mx::array>& inputs, mx::array& out) override {
    eval_cpu(inputs, out);
  }

  std::vector<mx::array> jvp(const std::vector<mx::array>&, const std::vector<mx::array>& tangents,
                             const std::vector<int>&) override {
    return {record(tangents[0], exchange_, group_, stream())};
  }

  std::vector<mx::array> vjp(const std::vector<mx::array>& primals,
                             const std::vector<mx::array>& cotangents, const std::vector<int>&,
                             const std::vector<mx::array>&) override {
    return {record(cotangents[0], adjoint(exchange_, primals[0].shape()), group_, stream())};
  }

  /// Moves the mapped axis to position 1, so that axis 0 remains the axis of rows.
  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>& inputs,
                                                           const std::vector<int>& axes) override {
    mx::array x = inputs[0];
    int axis = axes[0];
    if (traits_of(exchange_.kind).has_rows && axis >= 0) {
      if (x.ndim() < 2) {
        throw mccl::InvalidArgument(
            std::string(name()) +
            ": vmap maps the only axis of the array, so no axis is left to divide");
      }
      x = mx::moveaxis(x, axis, 1, stream());
      axis = 1;
    }
    return {{record(x, exchange_, group_, stream())}, {axis}};
  }

  const char* name() const override { return "mccl::Exchange"; }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {output_shape(exchange_, inputs[0].shape(), group_->rank())};
  }

 private:
  void run(const mx::array& in, mx::array& out) {
    group_->run_on(stream(), in, out,
                   [exchange = exchange_, row = elements_of_row(in)](
                       mccl::Group& group, mccl::ConstBuffer from, mccl::Buffer to,
                       const mccl::CallOptions& options) {
                     return start(exchange, group, from, to, row, options);
                   });
  }

  void allocate(const mx::array& in, mx::array& out) const {
    const ExchangeKind kind = exchange_.kind;
    // The root's output of a broadcast equals its input, and the engine writes sums over their
    // input.
    const bool equals_input = kind == broadcast && group_->rank() == exchange_.root;
    if (equals_input || ((kind == all_sum || kind == all_mean) && in.is_donatable())) {
      out.copy_shared_buffer(in);
    } else {
      out.set_data(mx::allocator::malloc(out.nbytes()));
    }
  }

  static std::size_t elements_of_row(const mx::array& in) {
    std::size_t elements = 1;
    for (std::size_t axis = 1; axis < in.ndim(); ++axis) {
      elements *= static_cast<std::size_t>(in.shape(static_cast<int>(axis)));
    }
    return elements;
  }

  const std::shared_ptr<MlxGroup> group_;
  const ArrayExchange exchange_;
};

}  // namespace

void check(const ArrayExchange& exchange, const mx::Shape& input, int rank, int size) {
  const std::string_view name = traits_of(exchange.kind).name;
  if (exchange.root < 0 || exchange.root >= size) {
    throw mccl::InvalidArgument(fmt::format("{}: root {} is not a rank of this group (0 to {})",
                                            name, exchange.root, size - 1));
  }
  if (!traits_of(exchange.kind).has_rows) return;
  if (input.empty()) {
    throw mccl::InvalidArgument(
        fmt::format("{}: expected an array with an axis to divide; found a scalar", name));
  }
  check_rows(name, exchange.kind == all_to_all ? "rows_to" : "rows", exchange.rows, size);
  if (exchange.kind == all_to_all) check_rows(name, "rows_from", exchange.from, size);
  const int wanted = rows_wanted(exchange, rank);
  if (wanted < 0 || wanted == input[0]) return;
  throw mccl::InvalidArgument(fmt::format(
      "{}: rank {} passed an array of {} rows; expected {} rows (the rows of all ranks: {})", name,
      rank, input[0], wanted, exchange.rows));
}

std::shared_ptr<MlxGroup> group_in(const mx::distributed::Group& group) {
  auto found = std::dynamic_pointer_cast<MlxGroup>(group.raw_group());
  if (!found && !std::dynamic_pointer_cast<Alone>(group.raw_group())) {
    throw mccl::InvalidArgument(
        "group: expected a group from mccl.mlx.init() or its split(); found a group of one of "
        "MLX's own backends");
  }
  return found;
}

mx::array record(const mx::array& x, const ArrayExchange& exchange,
                 const std::shared_ptr<MlxGroup>& group, mx::StreamOrDevice stream) {
  check(exchange, x.shape(), group->rank(), group->size());
  const mx::Stream chosen = traits_of(exchange.kind).runs_on_gpu
                                ? group->communication_stream(stream)
                                : MlxGroup::stream_of_cpu(stream);
  return mx::array(output_shape(exchange, x.shape(), group->rank()), x.dtype(),
                   std::make_shared<ExchangePrimitive>(chosen, group, exchange),
                   {mx::contiguous(x, false, chosen)});
}

namespace {

/// An operation of MLX's graphs with two results: the mean of arrays that a codec rounds before
/// they are sent, and this rank's rounding error.
class RoundedMean final : public mx::Primitive {
 public:
  RoundedMean(mx::Stream stream, std::shared_ptr<MlxGroup> group,
              const mccl::Compression& compression)
      : Primitive(stream), group_(std::move(group)), compression_(compression) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const mx::array& in = inputs[0];
    for (mx::array& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      ask_for_large_pages(buffer_of(output));
    }
    group_->run_on(stream(), buffer_of(outputs[0]),
                   [compression = compression_, in = buffer_of(in), mean = buffer_of(outputs[0]),
                    left = buffer_of(outputs[1])](mccl::Group& group, mccl::CallOptions options) {
                     options.compression = compression;
                     options.left_out = left;
                     return group.all_reduce(in, mean, mccl::ReduceKind::avg, options);
                   });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw mccl::Error("MCCL supports CPU streams only");
  }

  const char* name() const override { return "mccl::RoundedMean"; }

  std::vector<mx::Shape> output_shapes(const std::vector<mx::array>& inputs) override {
    return {inputs[0].shape(), inputs[0].shape()};
  }

 private:
  const std::shared_ptr<MlxGroup> group_;
  const mccl::Compression compression_;
};

}  // namespace

std::pair<mx::array, mx::array> record_rounded_mean(const mx::array& x,
                                                    const mccl::Compression& compression,
                                                    const std::shared_ptr<MlxGroup>& group,
                                                    mx::StreamOrDevice stream) {
  if (!mx::issubdtype(x.dtype(), mx::floating)) {
    throw mccl::InvalidArgument("rounded_mean: expected an array of floats");
  }
  const mx::Stream chosen = MlxGroup::stream_of_cpu(stream);
  auto both = mx::array::make_arrays({x.shape(), x.shape()}, {x.dtype(), x.dtype()},
                                     std::make_shared<RoundedMean>(chosen, group, compression),
                                     {mx::contiguous(x, false, chosen)});
  return {both[0], both[1]};
}

}  // namespace mccl_mlx
