// Loads NCCL at run time. This file declares all functions and types of NCCL that MCCL uses, so a
// build needs no nccl.h.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/library.h"
#include "mccl/types.h"

namespace mccl::nccl {

using Result = int;
using Comm = struct CommOfNccl*;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInProgress = 7;
inline constexpr int kNoColor = -1;  ///< Color of a rank that joins no new communicator.

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t of NCCL 2.18. Newer versions of NCCL accept it, too.
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

/// The functions of NCCL, without the prefix nccl. The constructor throws LoadError if NCCL lacks
/// one of these functions.
struct NcclLibrary {
  explicit NcclLibrary(SharedLibrary its_file) : file(std::move(its_file)) {}

  SharedLibrary file;
  LibraryFunction<Result(int* version)> GetVersion{file, "ncclGetVersion"};
  LibraryFunction<Result(UniqueId*)> GetUniqueId{file, "ncclGetUniqueId"};
  LibraryFunction<const char*(Result)> GetErrorString{file, "ncclGetErrorString"};
  LibraryFunction<const char*(Comm)> GetLastError{file, "ncclGetLastError"};
  LibraryFunction<Result(Comm*, int size, UniqueId, int rank, CommConfig*)> CommInitRankConfig{
      file, "ncclCommInitRankConfig"};
  LibraryFunction<Result(Comm, int color, int key, Comm* part, CommConfig*)> CommSplit{
      file, "ncclCommSplit"};
  LibraryFunction<Result(Comm, Result*)> CommGetAsyncError{file, "ncclCommGetAsyncError"};
  LibraryFunction<Result(Comm)> CommAbort{file, "ncclCommAbort"};
  LibraryFunction<Result(const void* in, void* out, std::size_t count, int type, int op, Comm,
                         void* stream)>
      AllReduce{file, "ncclAllReduce"};
  LibraryFunction<Result(const void* in, void* out, std::size_t count, int type, int root, Comm,
                         void* stream)>
      Broadcast{file, "ncclBroadcast"};
  LibraryFunction<Result(const void* in, void* out, std::size_t count, int type, int op, int root,
                         Comm, void* stream)>
      Reduce{file, "ncclReduce"};
  LibraryFunction<Result(const void* in, void* out, std::size_t count, int type, Comm,
                         void* stream)>
      AllGather{file, "ncclAllGather"};
  LibraryFunction<Result(const void* in, void* out, std::size_t count, int type, int op, Comm,
                         void* stream)>
      ReduceScatter{file, "ncclReduceScatter"};
  LibraryFunction<Result(const void* data, std::size_t count, int type, int peer, Comm,
                         void* stream)>
      Send{file, "ncclSend"};
  LibraryFunction<Result(void* data, std::size_t count, int type, int peer, Comm, void* stream)>
      Recv{file, "ncclRecv"};
  LibraryFunction<Result()> GroupStart{file, "ncclGroupStart"};
  LibraryFunction<Result()> GroupEnd{file, "ncclGroupEnd"};

  int version = 0;  ///< For example, 22809 for NCCL 2.28.9.

  /// Returns text such as "NCCL 2.28.9 (/usr/lib/…/libnccl.so.2)".
  std::string described() const;
};

/// Returns the NCCL that the process has already loaded, for example through torch, or else loads
/// the system's NCCL. Throws InvalidArgument with the reason if none is found or it is too old.
const NcclLibrary& library();

/// NCCL's numbers for types and operations; -1 if NCCL has no equivalent with the same result.
int type_of(DType dtype);
int op_of(DType dtype, ReduceKind kind);

}  // namespace mccl::nccl
