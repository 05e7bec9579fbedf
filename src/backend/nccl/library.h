// NCCL, loaded at run time. What is used of it is declared here; nccl.h need not be there to build.
#pragma once

#include <cstddef>
#include <string>

#include "mccl/types.h"

namespace mccl::nccl {

using Result = int;
using Comm = struct CommOfNccl*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kNoColor = -1;  ///< Of a rank that is in no part.

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t as NCCL 2.18 has it, which newer ones take too.
struct CommConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int least_blocks;
  int most_blocks;
  const char* network;
  int split_share;
};

struct Library {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId*);
  const char* (*GetErrorString)(Result);
  const char* (*GetLastError)(Comm);
  Result (*CommInitRankConfig)(Comm*, int size, UniqueId, int rank, CommConfig*);
  Result (*CommSplit)(Comm, int color, int key, Comm* part, CommConfig*);
  Result (*CommGetAsyncError)(Comm, Result*);
  Result (*CommAbort)(Comm);
  Result (*AllReduce)(const void* in, void* out, std::size_t count, int type, int op, Comm,
                      void* stream);
  Result (*Broadcast)(const void* in, void* out, std::size_t count, int type, int root, Comm,
                      void* stream);
  Result (*Reduce)(const void* in, void* out, std::size_t count, int type, int op, int root, Comm,
                   void* stream);
  Result (*AllGather)(const void* in, void* out, std::size_t count, int type, Comm, void* stream);
  Result (*ReduceScatter)(const void* in, void* out, std::size_t count, int type, int op, Comm,
                          void* stream);
  Result (*Send)(const void* data, std::size_t count, int type, int peer, Comm, void* stream);
  Result (*Recv)(void* data, std::size_t count, int type, int peer, Comm, void* stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();

  int version = 0;   ///< Such as 22809.
  std::string path;  ///< Of the file, where the loader tells.

  /// "2.28.9 (/usr/lib/…/libnccl.so.2)".
  std::string described() const;
};

/// The one that the process has already, as torch brings one, else the system's. Throws
/// InvalidArgument that says in one sentence why there is none.
const Library& library();

/// NCCL's numbers of types and operations; -1 for what it has not.
int type_of(DType dtype);
int op_of(DType dtype, ReduceKind kind);

}  // namespace mccl::nccl
