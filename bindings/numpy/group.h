// A group whose calls take Python arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mccl/group.h"
#include "numpy/arguments.h"
#include "numpy/array.h"
#include "numpy/work.h"
#include "python/call_line.h"

namespace mccl::numpy {

namespace nb = nanobind;

/// Options of one call: the Python arguments of the same names.
struct Manner {
  bool wait = true;
  Timeout timeout = {};
  std::optional<Compression> compression = {};
};

/// Python's Group. bind_group.cpp documents the calls.
class ArrayGroup {
 public:
  explicit ArrayGroup(std::shared_ptr<Group> group);
  ArrayGroup(ArrayGroup&&) = default;
  ~ArrayGroup();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  const std::string& name() const { return group_->name(); }
  nb::object failure() const;
  nb::object capsule() const;
  std::string repr() const;

  nb::object all_reduce(nb::handle x, nb::handle op, nb::handle out, bool wait, nb::handle timeout,
                        nb::handle compression);
  nb::object broadcast(nb::handle x, int root, nb::handle out, bool wait, nb::handle timeout);
  nb::object reduce(nb::handle x, nb::handle op, int root, nb::handle out, bool wait,
                    nb::handle timeout);
  nb::object barrier(bool wait, nb::handle timeout);
  nb::object send(nb::handle x, int peer, std::int64_t tag, bool wait, nb::handle timeout);
  nb::object recv(nb::handle out, std::optional<int> peer, std::int64_t tag, bool wait,
                  nb::handle timeout);

  // Calls on rows (group_rows.cpp). A row consists of the elements at one index of the first axis.
  nb::object all_gather(nb::handle x, nb::handle out, nb::handle counts, bool wait,
                        nb::handle timeout);
  nb::object gather(nb::handle x, int root, nb::handle out, nb::handle counts, bool wait,
                    nb::handle timeout);
  nb::object reduce_scatter(nb::handle x, nb::handle op, nb::handle out, nb::handle counts,
                            bool wait, nb::handle timeout, nb::handle compression);
  nb::object scatter(nb::handle x, int root, nb::handle out, nb::handle counts, bool wait,
                     nb::handle timeout);
  nb::object all_to_all(nb::handle x, nb::handle out, nb::handle in_counts, nb::handle out_counts,
                        bool wait, nb::handle timeout);

  nb::object split(int color, int key);
  ArrayGroup shrink(nb::handle timeout);
  void abort(const std::string& reason) { group_->abort(reason); }

 private:
  /// Makes a call. `start(group, options)`, which runs without the GIL, starts the call and returns
  /// its Work. If `manner.wait` is true, returns `kept.result` once the call is done. Otherwise
  /// returns a Work with that result immediately.
  template <typename Start>
  nb::object run(const char* call, const Manner& manner, Kept kept, Start&& start);

  void check_root(const char* call, int root) const;

  std::shared_ptr<Group> group_;
  int process_;  ///< Id of the process that made this object. A forked child has another id.
};

template <typename Start>
nb::object ArrayGroup::run(const char* call, const Manner& manner, Kept kept, Start&& start) {
  Work work;
  bool finished = false;
  const CallSite* const site = python::line_of_caller();
  {
    const nb::gil_scoped_release without_gil;
    work = start(*group_, CallOptions{.timeout = manner.timeout,
                                      .caller_waits = manner.wait,
                                      .compression = manner.compression,
                                      .site = site});
    finished = manner.wait && wait_a_while(work);
  }
  if (finished) return std::move(kept.result);
  ArrayWork handle(call, std::move(work), std::move(kept));
  return manner.wait ? handle.wait(nb::none()) : nb::cast(std::move(handle));
}

void bind_group(nb::module_& module);

}  // namespace mccl::numpy
