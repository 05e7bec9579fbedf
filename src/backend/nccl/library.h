// NCCL, loaded at run time. This file declares the parts that are used, so building needs no
// nccl.h.
#pragma once

#include <cstddef>
#include <string>

#include "mccl/types.h"

namespace mccl::nccl {

using Result = int;
using Comm = struct CommOfNccl*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kNoColor = -1;  ///< Color of a rank that joins no part.

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t of NCCL 2.18; newer versions accept it too.
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

  int version = 0;   ///< Number such as 22809.
  std::string path;  ///< Path of the file, if the loader reports it.

  /// Returns text such as "NCCL 2.28.9 (/usr/lib/…/libnccl.so.2)".
  std::string described() const;
};

/// Returns the NCCL that the process has already loaded, for example through torch, or else the
/// system's. Throws InvalidArgument with the reason if there is none.
const Library& library();

/// NCCL's numbers for types and operations; -1 if NCCL has no equivalent with the same result.
int type_of(DType dtype);
int op_of(DType dtype, ReduceKind kind);

}  // namespace mccl::nccl
