// Starts the MPI calls of a request: chooses MPI's functions and the memory that they use.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "backend/mpi/flight.h"
#include "backend/request.h"

namespace mccl::mpi {
namespace {

/// Addresses for empty buffers. MPI does not accept null, or the same address for input and output.
std::byte kNothing[2] = {};

bool is_aligned(const void* data, DType dtype) {
  const std::size_t alignment = std::min<std::size_t>(size_of(dtype), 8);
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace

/// Starts the MPI call or calls that carry out one request, and stores their MPI requests in the
/// Flight.
class Beginning {
 public:
  Beginning(Flight& flight, const CallCommunicator& place, const engine::Request& request,
            bool waits)
      : flight_(flight),
        waits_(waits),
        place_(place),
        mpi_(*place.library),
        request_(request),
        call_(request.call),
        // counts_hash is 0 if all counts are equal. Such a call is treated as a call without
        // counts, because other ranks may have passed no counts.
        counts_(call_.counts_hash != 0 ? request.counts : std::span<const std::size_t>()),
        shares_(counts_.empty()
                    ? Shares::equal(place.size, call_.count / static_cast<std::size_t>(place.size))
                    : Shares::of(counts_)),
        type_(mpi_.type_of(request.call.dtype)),
        element_(size_of(request.call.dtype)) {
    flight.dtype_ = call_.dtype;
  }

  void run() {
    lay_out();
    // True if all ranks know that the call moves no data. Among such calls, only a barrier needs
    // MPI.
    const bool is_empty = call_.count == 0 && !has_own_counts() && is_collective(call_);
    if (is_empty && call_.collective != Collective::barrier) return;
    switch (call_.collective) {
      case Collective::all_reduce:
        return pieces(call_.count, [&](std::size_t at, int n) {
          call(mpi_.Allreduce, in_or_in_place(at), part(out_, at), n, type_, operation());
        });
      case Collective::broadcast:
        return broadcast(data_of_broadcast(), call_.count, call_.root);
      case Collective::reduce:
        return pieces(call_.count, [&](std::size_t at, int n) {
          call(mpi_.Reduce, in_or_in_place(at), is_root() ? part(out_, at) : out_, n, type_,
               operation(), call_.root);
        });
      case Collective::all_gather:
        return all_gather();
      case Collective::gather:
        return gather();
      case Collective::scatter:
        return scatter();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::all_to_all:
        return all_to_all();
      case Collective::barrier:
        flight_.own_memory_ = true;  // a barrier uses no memory of the caller
        return message(mpi_.Ibarrier);
      case Collective::send: {
        const auto [count, type] = flight_.bytes_of(request_.in.bytes());
        return message(mpi_.Isend, in_, count, type, call_.peer, tag_of(place_, call_));
      }
      case Collective::recv:
        return flight_.receives_.push_back({call_.peer < 0 ? mpi_.abi().any_source : call_.peer,
                                            tag_of(place_, call_), out_, request_.out.bytes()});
    }
  }

 private:
  /// Chooses the memory that MPI reads and writes. Copies small data through the Flight's own
  /// memory, and also the operands of a reduction if they lack the alignment that MPI requires.
  void lay_out() {
    const bool is_broadcast = call_.collective == Collective::broadcast;
    const std::size_t given = is_broadcast && !is_root() ? 0 : request_.in.bytes();
    const std::size_t taken = is_broadcast && is_root() ? 0 : request_.out.bytes();
    const bool is_small = std::max(given, taken) <= Flight::kSmallBytes;
    const bool is_unaligned = reduces(call_) && (!is_aligned(request_.in.data, call_.dtype) ||
                                                 !is_aligned(request_.out.data, call_.dtype));
    const bool stages = is_small || is_unaligned;
    // In place, the output of a reduce_scatter is a slot of the input. The other slots must not
    // change, so the result is staged.
    const bool stages_result =
        stages || (call_.collective == Collective::reduce_scatter && request_.in_place);
    if (given > 0) in_ = static_cast<const std::byte*>(request_.in.data);
    if (taken > 0) out_ = static_cast<std::byte*>(request_.out.data);
    flight_.target_ = request_.out.data;
    flight_.target_bytes_ = taken;
    flight_.divides_ = reduces(call_) && call_.kind == ReduceKind::avg && taken > 0;
    flight_.own_memory_ = stages;
    in_place_ = request_.in_place && !stages_result;
    if (!stages_result) return;
    const std::size_t copied = stages ? given : 0;
    std::byte* const memory = flight_.memory(copied + taken);
    if (copied > 0) {
      std::memcpy(memory, in_, copied);
      in_ = memory;
    }
    if (taken > 0) out_ = flight_.result_ = memory + copied;
  }

  void broadcast(std::byte* data, std::size_t count, int root) {
    pieces(count, [&](std::size_t at, int n) { call(mpi_.Bcast, part(data, at), n, type_, root); });
  }

  void all_gather() {
    if (call_.count > place_.most) {
      put_own_part();
      for (int rank = 0; rank < place_.size; ++rank)
        broadcast(part(out_, before(rank)), share(rank), rank);
    } else if (counts_.empty()) {
      call(mpi_.Allgather, in_or_in_place(), own_share(), type_, out_, own_share(), type_);
    } else {
      const int* const counts = counts_and_offsets();
      call(mpi_.Allgatherv, in_or_in_place(), own_share(), type_, out_, counts,
           counts + place_.size, type_);
    }
  }

  /// If an offset may exceed the range of int, the type of MPI's offsets, the gather is carried out
  /// by messages.
  void gather() {
    if (call_.count > place_.most) {
      if (!is_root()) return send_pieces(in_, share(place_.rank), call_.root);
      put_own_part();
      for_each_other(
          [&](int rank) { receive_pieces(part(out_, before(rank)), share(rank), rank); });
    } else if (counts_.empty()) {
      call(mpi_.Gather, in_or_in_place(), own_share(), type_, out_, own_share(), type_, call_.root);
    } else {
      const int* const counts = counts_and_offsets();
      call(mpi_.Gatherv, in_or_in_place(), own_share(), type_, out_, counts, counts + place_.size,
           type_, call_.root);
    }
  }

  void scatter() {
    void* const out = in_place_ ? mpi_.in_place() : out_;
    if (call_.count > place_.most) {
      const std::size_t own = share(place_.rank);
      if (!is_root()) return receive_pieces(out_, own, call_.root);
      if (!in_place_ && own > 0) std::memcpy(out_, part(in_, before(place_.rank)), own * element_);
      for_each_other([&](int rank) { send_pieces(part(in_, before(rank)), share(rank), rank); });
    } else if (counts_.empty()) {
      call(mpi_.Scatter, in_, own_share(), type_, out, own_share(), type_, call_.root);
    } else {
      const int* const counts = counts_and_offsets();
      call(mpi_.Scatterv, in_, counts, counts + place_.size, type_, out, own_share(), type_,
           call_.root);
    }
  }

  void reduce_scatter() {
    if (call_.count > place_.most) {
      for (int rank = 0; rank < place_.size; ++rank) {
        pieces(share(rank), [&](std::size_t at, int n) {
          call(mpi_.Reduce, part(in_, before(rank) + at),
               rank == place_.rank ? part(out_, at) : kNothing, n, type_, operation(), rank);
        });
      }
    } else if (counts_.empty()) {
      call(mpi_.Reduce_scatter_block, in_, out_, own_share(), type_, operation());
    } else {
      call(mpi_.Reduce_scatter, in_, out_, counts_and_offsets(), type_, operation());
    }
  }

  /// All ranks must make the same MPI call. But in an all_to_all with counts, no rank knows whether
  /// another rank's counts exceed the range of MPI's int. All ranks therefore use messages, whose
  /// sizes both ends know.
  void all_to_all() {
    if (!has_own_counts() && call_.count <= place_.most)
      return call(mpi_.Alltoall, in_, own_share(), type_, out_, own_share(), type_);
    std::size_t given = 0;
    std::size_t taken = 0;
    for (int rank = 0; rank < place_.size; ++rank) {
      const std::size_t to = share(rank);
      const std::size_t from =
          has_own_counts() ? request_.recv_counts[static_cast<std::size_t>(rank)] : to;
      if (rank == place_.rank) {
        if (to > 0) std::memcpy(part(out_, taken), part(in_, given), to * element_);
      } else {
        send_pieces(part(in_, given), to, rank);
        receive_pieces(part(out_, taken), from, rank);
      }
      given += to;
      taken += from;
    }
  }

  void add(Handle request) {
    if (request != mpi_.abi().no_request) flight_.requests_.push_back(request);
  }
  template <typename Call, typename... Arguments>
  void call(const Call& collective, Arguments... arguments) {
    add(mpi_.begin(collective, waits_, arguments..., place_.comm));
  }
  template <typename... Parameters, typename... Arguments>
  void message(const Function<Parameters...>& function, Arguments... arguments) {
    Handle request = 0;
    function(arguments..., place_.comm, &request);
    add(request);
  }

  bool is_root() const { return call_.root == place_.rank; }
  bool has_own_counts() const { return call_.counts_hash == engine::kOwnCounts; }
  Handle operation() const { return mpi_.operation(call_.dtype, call_.kind); }
  const void* in_or_in_place(std::size_t at = 0) const {
    return in_place_ ? mpi_.in_place() : static_cast<const void*>(part(in_, at));
  }
  /// Returns the input on the root, and the output on all other ranks.
  std::byte* data_of_broadcast() const { return is_root() ? const_cast<std::byte*>(in_) : out_; }
  /// Copies this rank's part into the gathered output.
  void put_own_part() const {
    if (in_place_ || request_.in.count == 0) return;
    std::memcpy(part(out_, before(place_.rank)), in_, request_.in.bytes());
  }

  std::byte* part(std::byte* data, std::size_t at) const { return data + at * element_; }
  const std::byte* part(const std::byte* data, std::size_t at) const {
    return data + at * element_;
  }
  std::size_t share(int rank) const { return shares_.at(rank); }
  std::size_t before(int rank) const { return shares_.before(rank); }
  int own_share() const { return static_cast<int>(share(place_.rank)); }
  template <typename Visit>
  void for_each_other(const Visit& visit) const {
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) visit(rank);
    }
  }

  /// Divides `count` elements into pieces of at most `place_.most` elements. Calls `begin(at, n)`
  /// for each piece, which consists of the `n` elements from index `at`.
  template <typename Begin>
  void pieces(std::size_t count, const Begin& begin) {
    for (std::size_t at = 0; at < count; at += place_.most) {
      begin(at, static_cast<int>(std::min(place_.most, count - at)));
    }
  }
  void send_pieces(const std::byte* data, std::size_t count, int peer) {
    pieces(count, [&](std::size_t at, int n) {
      const auto [number, type] = flight_.bytes_of(static_cast<std::size_t>(n) * element_);
      message(mpi_.Isend, part(data, at), number, type, peer, tag_of_pieces());
    });
  }
  void receive_pieces(std::byte* data, std::size_t count, int peer) {
    pieces(count, [&](std::size_t at, int n) {
      flight_.receives_.push_back(
          {peer, tag_of_pieces(), part(data, at), static_cast<std::size_t>(n) * element_});
    });
  }
  int tag_of_pieces() const { return half_of_tags(place_.largest_tag) - 1; }

  /// Returns an array that contains the counts of all ranks and then their offsets. The flight owns
  /// the array.
  const int* counts_and_offsets() {
    std::vector<int>& numbers = flight_.counts_;
    numbers.clear();
    for (const std::size_t count : counts_) numbers.push_back(static_cast<int>(count));
    std::size_t offset = 0;
    for (const std::size_t count : counts_) {
      numbers.push_back(static_cast<int>(offset));
      offset += count;
    }
    return numbers.data();
  }

  Flight& flight_;
  const bool waits_;
  const CallCommunicator& place_;
  const MpiLibrary& mpi_;
  const engine::Request& request_;
  const engine::Call& call_;
  const std::span<const std::size_t> counts_;  ///< Elements of each rank; empty if parts are equal.
  const Shares shares_;
  const Handle type_;
  const std::size_t element_;
  const std::byte* in_ = kNothing;
  std::byte* out_ = kNothing + 1;
  bool in_place_ = false;  ///< True if the call passes MPI_IN_PLACE.
};

void Flight::begin(const CallCommunicator& place, const engine::Request& request, bool waits) {
  clear();
  place_ = &place;
  Beginning(*this, place, request, waits).run();
}

}  // namespace mccl::mpi
