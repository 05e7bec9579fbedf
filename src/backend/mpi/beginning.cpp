// Begins each kind of call: chooses MPI's function and the memory that it uses.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "backend/mpi/flight.h"
#include "backend/shares.h"

namespace mccl::mpi {
namespace {

/// Addresses for empty buffers. MPI does not accept null, or the same address for input and output.
std::byte kNothing[2] = {};

bool is_aligned(const void* data, DType dtype) {
  const std::size_t alignment = std::min<std::size_t>(size_of(dtype), 8);
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace

/// Begins one call of a flight.
class Beginning {
 public:
  Beginning(Flight& flight, const Place& place, const engine::Request& request, bool waits)
      : flight_(flight),
        waits_(waits),
        place_(place),
        library_(*place.library),
        request_(request),
        call_(request.call),
        // The hash is 0 if all counts are equal. The call is then treated as one without counts,
        // because other ranks may make it without counts.
        counts_(call_.counts_hash != 0 ? request.counts : Counts()),
        shares_(counts_.empty()
                    ? Shares::equal(place.size, call_.count / static_cast<std::size_t>(place.size))
                    : Shares::of(counts_)),
        type_(place.library->type_of(request.call.dtype)),
        element_(size_of(request.call.dtype)) {
    flight.dtype_ = call_.dtype;
  }

  void run() {
    switch (call_.collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce:
        return reduce();
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
        flight_.own_memory_ = true;  // a barrier has no memory of the caller
        return add(library_.ibarrier(place_.comm));
      case Collective::send:
        return send();
      case Collective::recv:
        return receive();
    }
  }

 private:
  using Counts = std::span<const std::size_t>;

  void all_reduce() {
    const std::size_t count = request_.in.count;
    if (count == 0) return;
    result_is(request_.out, call_.kind == ReduceKind::avg);
    const bool own = stages(count * element_, request_.in.data, request_.out.data);
    auto* out = own ? staged(count * element_) : static_cast<std::byte*>(request_.out.data);
    const void* in = place_in(out, count) ? in_place() : input();
    pieces(count, [&](std::size_t at, int n) {
      add(library_.allreduce(in == in_place() ? in : part(in, at), part(out, at), n, type_,
                             operation(), place_.comm, waits_));
    });
  }

  void broadcast() {
    const std::size_t count = request_.out.count;
    if (count == 0) return;
    const bool is_root = call_.root == place_.rank;
    const bool own = stages(count * element_, request_.out.data, request_.out.data);
    auto* data = own ? staged(count * element_) : static_cast<std::byte*>(request_.out.data);
    if (own && is_root) std::memcpy(data, request_.out.data, count * element_);
    if (!is_root) result_is(request_.out, false);
    if (own) flight_.result_ = is_root ? nullptr : data;
    pieces(count, [&](std::size_t at, int n) {
      add(library_.bcast(part(data, at), n, type_, call_.root, place_.comm, waits_));
    });
  }

  void reduce() {
    const std::size_t count = request_.in.count;
    if (count == 0) return;
    const bool is_root = call_.root == place_.rank;
    if (is_root) result_is(request_.out, call_.kind == ReduceKind::avg);
    const bool own =
        stages(count * element_, request_.in.data, is_root ? request_.out.data : request_.in.data);
    std::byte* out = is_root ? static_cast<std::byte*>(request_.out.data) : nullptr;
    if (own) out = staged(count * element_);
    if (own && !is_root) flight_.result_ = nullptr;
    const bool placed = out && place_in(out, count);
    pieces(count, [&](std::size_t at, int n) {
      const void* in = placed ? part(out, at) : part(input(), at);
      if (is_root) {
        add(library_.reduce(placed ? in_place() : in, part(out, at), n, type_, operation(),
                            call_.root, place_.comm, waits_));
      } else {
        add(library_.reduce(in, kNothing, n, type_, operation(), call_.root, place_.comm, waits_));
      }
    });
  }

  void all_gather() {
    const std::size_t total = request_.out.count;
    if (total == 0) return;
    result_is(request_.out, false);
    const bool own = stages(total * element_, request_.in.data, request_.out.data);
    auto* out = own ? staged(total * element_) : static_cast<std::byte*>(request_.out.data);
    const bool long_call = total > place_.most;
    const bool placed = own || request_.in_place || long_call;
    if (own || (long_call && !request_.in_place)) copy_to(part(out, before(place_.rank)));
    if (long_call) {
      for (int rank = 0; rank < place_.size; ++rank) {
        pieces(share(rank), [&](std::size_t at, int n) {
          add(library_.bcast(part(out, before(rank) + at), n, type_, rank, place_.comm, waits_));
        });
      }
    } else if (counts_.empty()) {
      add(library_.allgather(placed ? in_place() : input(), count_of(share(place_.rank)), out,
                             count_of(share(0)), type_, place_.comm, waits_));
    } else {
      const int* counts = tell(counts_);
      add(library_.allgatherv(placed ? in_place() : input(), count_of(share(place_.rank)), out,
                              counts, counts + place_.size, type_, place_.comm, waits_));
    }
  }

  void gather() {
    const std::size_t total = before(place_.size);
    if (total == 0) return;
    const bool is_root = call_.root == place_.rank;
    if (is_root) result_is(request_.out, false);
    const std::size_t bytes = (is_root ? total : request_.in.count) * element_;
    const bool own = stages(bytes, request_.in.data, request_.in.data);
    std::byte* memory = own ? staged(bytes) : nullptr;
    if (own) copy_to(is_root ? part(memory, before(place_.rank)) : memory);
    if (own && !is_root) flight_.result_ = nullptr;
    auto* out = own ? memory : static_cast<std::byte*>(request_.out.data);
    const void* in = own && !is_root ? memory : input();
    if (total > place_.most) return long_gather(is_root, in, out, own || request_.in_place);
    const bool placed = is_root && (own || request_.in_place);
    if (!is_root) out = kNothing;
    if (counts_.empty()) {
      add(library_.gather(placed ? in_place() : in, count_of(share(place_.rank)), out,
                          count_of(share(0)), type_, call_.root, place_.comm, waits_));
    } else {
      const int* counts = tell(counts_);
      add(library_.gatherv(placed ? in_place() : in, count_of(share(place_.rank)), out, counts,
                           counts + place_.size, type_, call_.root, place_.comm, waits_));
    }
  }

  /// Carries out a gather by messages, because an offset may exceed MPI's int.
  void long_gather(bool is_root, const void* in, std::byte* out, bool placed) {
    if (!is_root) return send_pieces(in, share(place_.rank), call_.root);
    if (!placed) copy_to(part(out, before(place_.rank)));
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) receive_pieces(part(out, before(rank)), share(rank), rank);
    }
  }

  void scatter() {
    const std::size_t total = before(place_.size);
    if (total == 0) return;
    const bool is_root = call_.root == place_.rank;
    const std::size_t mine = share(place_.rank);
    result_is(request_.out, false);
    const std::size_t bytes = (is_root ? total + mine : mine) * element_;
    const bool own = stages(bytes, request_.out.data, request_.out.data);
    std::byte* out = static_cast<std::byte*>(request_.out.data);
    const void* in = input();
    if (own) {
      std::byte* memory = staged(bytes);
      out = is_root ? part(memory, total) : memory;
      flight_.result_ = out;
      if (is_root) {
        std::memcpy(memory, request_.in.data, total * element_);
        in = memory;
      }
    }
    if (total > place_.most) return long_scatter(is_root, in, out, !own && request_.in_place);
    void* into = is_root && !own && request_.in_place ? in_place() : or_nothing(out, mine);
    if (counts_.empty()) {
      add(library_.scatter(in, count_of(share(0)), into, count_of(mine), type_, call_.root,
                           place_.comm, waits_));
    } else {
      const int* counts = tell(counts_);
      add(library_.scatterv(in, counts, counts + place_.size, into, count_of(mine), type_,
                            call_.root, place_.comm, waits_));
    }
  }

  void long_scatter(bool is_root, const void* in, std::byte* out, bool placed) {
    if (!is_root) return receive_pieces(out, share(place_.rank), call_.root);
    const auto* own = part(in, before(place_.rank));
    if (!placed && share(place_.rank) > 0) std::memcpy(out, own, share(place_.rank) * element_);
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) send_pieces(part(in, before(rank)), share(rank), rank);
    }
  }

  void reduce_scatter() {
    const std::size_t total = request_.in.count;
    if (total == 0) return;
    const std::size_t mine = share(place_.rank);
    result_is(request_.out, call_.kind == ReduceKind::avg);
    // If the call is in place, the output is a slot of the input. The other slots must not change,
    // so the result is staged.
    const bool own = stages((total + mine) * element_, request_.in.data, request_.out.data);
    const void* in = input();
    auto* out = static_cast<std::byte*>(request_.out.data);
    if (own || request_.in_place) {
      const std::size_t copied = own ? total : 0;
      std::byte* memory = staged((copied + mine) * element_);
      if (copied > 0 && place_in(memory, total)) in = memory;
      out = part(memory, copied);
      flight_.result_ = out;
      flight_.own_memory_ = copied > 0;
    }
    void* into = or_nothing(out, mine);
    if (total > place_.most) {
      for (int rank = 0; rank < place_.size; ++rank) {
        pieces(share(rank), [&](std::size_t at, int n) {
          void* here = rank == place_.rank ? part(out, at) : kNothing;
          add(library_.reduce(part(in, before(rank) + at), here, n, type_, operation(), rank,
                              place_.comm, waits_));
        });
      }
    } else if (counts_.empty()) {
      add(library_.reduce_scatter_block(in, into, count_of(mine), type_, operation(), place_.comm,
                                        waits_));
    } else {
      add(library_.reduce_scatter(in, into, tell(counts_), type_, operation(), place_.comm,
                                  waits_));
    }
  }

  void all_to_all() {
    const std::size_t given = request_.in.count;
    const std::size_t taken = request_.out.count;
    result_is(request_.out, false);
    const bool own = stages((given + taken) * element_, request_.in.data, request_.out.data);
    const void* in = input();
    std::byte* out = static_cast<std::byte*>(request_.out.data);
    if (own) {
      std::byte* memory = staged((given + taken) * element_);
      if (given > 0) std::memcpy(memory, request_.in.data, given * element_);
      in = memory;
      out = part(memory, given);
      flight_.result_ = out;
    }
    // All ranks must make the same MPI call. In an all_to_all with counts, no rank knows whether
    // another rank's counts exceed the range of MPI's int. All ranks therefore use messages, whose
    // sizes are known to the sender and the receiver.
    if (own_counts() || given > place_.most) return exchange(in, out);
    void* into = taken > 0 ? out : kNothing + 1;
    const int each = count_of(share(0));
    add(library_.alltoall(in, each, into, each, type_, place_.comm, waits_));
  }

  /// Carries out an all_to_all by messages.
  void exchange(const void* in, std::byte* out) {
    std::size_t given = 0;
    std::size_t taken = 0;
    for (int rank = 0; rank < place_.size; ++rank) {
      const std::size_t to = share(rank);
      const std::size_t from =
          own_counts() ? request_.recv_counts[static_cast<std::size_t>(rank)] : to;
      if (rank == place_.rank) {
        if (to > 0) std::memcpy(part(out, taken), part(in, given), to * element_);
      } else {
        send_pieces(part(in, given), to, rank);
        receive_pieces(part(out, taken), from, rank);
      }
      given += to;
      taken += from;
    }
  }

  void send() {
    const std::size_t bytes = request_.in.bytes();
    const bool own = bytes <= Flight::kSmallBytes;
    const void* data = input();
    if (own) {
      std::byte* memory = staged(bytes);
      if (bytes > 0) std::memcpy(memory, request_.in.data, bytes);
      data = memory;
      flight_.result_ = nullptr;
    }
    const int tag = tag_of(place_, call_);
    const auto [count, type] = bytes_of(bytes);
    add(library_.isend(data, count, type, call_.peer, tag, place_.comm));
  }

  void receive() {
    const std::size_t bytes = request_.out.bytes();
    const bool own = bytes <= Flight::kSmallBytes;
    result_is(request_.out, false);
    void* data = own ? staged(bytes) : request_.out.data;
    flight_.wants_arrival_ = true;
    const int tag = tag_of(place_, call_);
    const int peer = call_.peer < 0 ? library_.constants().any_source : call_.peer;
    const auto [count, type] = bytes_of(bytes);
    add(library_.irecv(data, count, type, peer, tag, place_.comm));
  }

  // Helpers of the functions above.

  void add(Handle request) {
    if (request != library_.constants().no_request) flight_.requests_.push_back(request);
  }
  void* in_place() const { return library_.constants().in_place; }
  Handle operation() const { return place_.operations->of(call_.dtype, call_.kind); }
  const void* input() const { return request_.in.data ? request_.in.data : kNothing; }
  static void* or_nothing(std::byte* out, std::size_t count) {
    return count > 0 ? out : kNothing + 1;
  }

  std::byte* part(std::byte* data, std::size_t at) const { return data + at * element_; }
  const std::byte* part(const void* data, std::size_t at) const {
    return static_cast<const std::byte*>(data) + at * element_;
  }

  std::size_t share(int rank) const { return shares_.at(rank); }
  bool own_counts() const { return call_.counts_hash == engine::kOwnCounts; }
  std::size_t before(int rank) const { return shares_.before(rank); }
  static int count_of(std::size_t count) { return static_cast<int>(count); }

  /// Calls `begin(at, n)` for each piece: `n` elements from `at`, at most `place_.most`.
  template <typename Begin>
  void pieces(std::size_t count, const Begin& begin) {
    for (std::size_t at = 0; at < count; at += place_.most) {
      begin(at, count_of(std::min(place_.most, count - at)));
    }
  }
  void send_pieces(const void* data, std::size_t count, int peer) {
    pieces(count, [&](std::size_t at, int n) {
      add(library_.isend(part(data, at), n, type_, peer, tag_of_pieces(), place_.comm));
    });
  }
  void receive_pieces(std::byte* data, std::size_t count, int peer) {
    pieces(count, [&](std::size_t at, int n) {
      add(library_.irecv(part(data, at), n, type_, peer, tag_of_pieces(), place_.comm));
    });
  }
  int tag_of_pieces() const { return half_of_tags(place_.largest_tag) - 1; }

  /// Returns the count and type of a message of `bytes` bytes. If the count exceeds the range of
  /// int, the message is one element of a type made for it.
  std::pair<int, Handle> bytes_of(std::size_t bytes) {
    if (bytes <= std::min<std::size_t>(place_.most, std::numeric_limits<int>::max())) {
      return {count_of(bytes), library_.constants().byte};
    }
    flight_.long_type_ = library_.create_long_type(bytes);
    flight_.has_long_type_ = true;
    return {1, flight_.long_type_};
  }

  /// True if the data are copied through the flight's own memory: small data, and operands of
  /// reductions that are not aligned as MPI needs.
  bool stages(std::size_t bytes, const void* in, const void* out) const {
    if (bytes <= Flight::kSmallBytes) return true;
    return reduces(call_) && (!is_aligned(in, call_.dtype) || !is_aligned(out, call_.dtype));
  }
  /// Returns the flight's own memory. It will hold the result, unless the caller changes `result_`.
  std::byte* staged(std::size_t bytes) {
    flight_.own_memory_ = true;
    flight_.result_ = flight_.memory(bytes);
    return flight_.result_;
  }
  void result_is(const Buffer& out, bool divides) {
    flight_.target_ = out.data;
    flight_.target_bytes_ = out.bytes();
    flight_.divides_ = divides;
  }
  void copy_to(std::byte* memory) const {
    if (request_.in.count > 0) std::memcpy(memory, request_.in.data, request_.in.bytes());
  }
  /// Copies the input to `out` if that is the flight's own memory. Returns true if `out` now holds
  /// the input, so that MPI can reduce in place.
  bool place_in(std::byte* out, std::size_t count) {
    if (out == request_.in.data) return true;
    if (flight_.own_memory_) std::memcpy(out, request_.in.data, count * element_);
    return flight_.own_memory_;
  }

  /// Returns the counts, followed by the offsets, as ints. The flight owns them.
  const int* tell(Counts counts) {
    std::vector<int>& told = flight_.counts_;
    told.clear();
    for (const std::size_t count : counts) told.push_back(count_of(count));
    std::size_t offset = 0;
    for (const std::size_t count : counts) {
      told.push_back(count_of(offset));
      offset += count;
    }
    return told.data();
  }

  Flight& flight_;
  const bool waits_;
  const Place& place_;
  Library& library_;
  const engine::Request& request_;
  const engine::Call& call_;
  const Counts counts_;  ///< Elements of each rank; empty if all parts are equal.
  const Shares shares_;
  const Handle type_;
  const std::size_t element_;
};

void Flight::begin(const Place& place, const engine::Request& request, bool waits) {
  clear();
  place_ = &place;
  Beginning(*this, place, request, waits).run();
}

void Flight::gather(const Place& place) {
  clear();
  place_ = &place;
  own_memory_ = true;
  requests_.push_back(place.library->ibarrier(place.comm));
}

}  // namespace mccl::mpi
