// Compiled where MPICH's header is installed, to check this project's declarations of its ABI
// against that header. There is nothing to run.
#include <mpi.h>

#include <cstddef>

#include "backend/mpi/mpich_abi.h"

namespace ours = mccl::mpi::mpich;

static_assert(ours::kWorld == MPI_COMM_WORLD && ours::kSelf == MPI_COMM_SELF);
static_assert(ours::kErrorsReturn == MPI_ERRORS_RETURN && ours::kNoRequest == MPI_REQUEST_NULL);
static_assert(ours::kByte == MPI_BYTE);
static_assert(ours::kUint8 == MPI_UINT8_T && ours::kInt8 == MPI_INT8_T);
static_assert(ours::kUint16 == MPI_UINT16_T && ours::kInt16 == MPI_INT16_T);
static_assert(ours::kUint32 == MPI_UINT32_T && ours::kInt32 == MPI_INT32_T);
static_assert(ours::kUint64 == MPI_UINT64_T && ours::kInt64 == MPI_INT64_T);
static_assert(ours::kFloat == MPI_FLOAT && ours::kDouble == MPI_DOUBLE);
static_assert(ours::kFloatComplex == MPI_C_FLOAT_COMPLEX);
static_assert(ours::kDoubleComplex == MPI_C_DOUBLE_COMPLEX);
static_assert(ours::kSum == MPI_SUM && ours::kProduct == MPI_PROD);
static_assert(ours::kMin == MPI_MIN && ours::kMax == MPI_MAX);
static_assert(ours::kBand == MPI_BAND && ours::kBor == MPI_BOR && ours::kBxor == MPI_BXOR);
static_assert(ours::kAnySource == MPI_ANY_SOURCE);
static_assert(ours::kTagBound == MPI_TAG_UB);
static_assert(ours::kTruncated == MPI_ERR_TRUNCATE);
static_assert(ours::kLevels[0] == MPI_THREAD_SINGLE && ours::kLevels[1] == MPI_THREAD_FUNNELED);
static_assert(ours::kLevels[2] == MPI_THREAD_SERIALIZED && ours::kLevels[3] == MPI_THREAD_MULTIPLE);
static_assert(sizeof(ours::Status) == sizeof(MPI_Status));
static_assert(offsetof(ours::Status, MPI_SOURCE) == offsetof(MPI_Status, MPI_SOURCE));
static_assert(sizeof(MPI_Comm) == sizeof(int) && sizeof(MPI_Request) == sizeof(int));
static_assert(sizeof(MPI_Aint) == sizeof(std::ptrdiff_t) && sizeof(MPI_Count) == 8);

/// Compared at run time, since neither side is a constant expression.
bool is_in_place() { return ours::kInPlace == MPI_IN_PLACE; }
