// Compiled where MPICH's header is installed, to check this project's declarations of its ABI
// against that header. There is nothing to run.
#include <mpi.h>

#include <cstddef>

#include "backend/mpi/abi.h"

namespace mccl::mpi {
namespace {

constexpr const Abi& ours = kMpich;
constexpr bool is(Handle handle, int theirs) { return handle == static_cast<unsigned>(theirs); }
constexpr Handle type(DType dtype) { return ours.types[static_cast<int>(dtype)]; }
constexpr Handle predefined(Predefined op) { return ours.predefined[static_cast<int>(op)]; }

static_assert(ours.handles_are_numbers);
static_assert(is(ours.world, MPI_COMM_WORLD) && is(ours.self, MPI_COMM_SELF));
static_assert(is(ours.errors_return, MPI_ERRORS_RETURN) && is(ours.no_request, MPI_REQUEST_NULL));
static_assert(is(ours.byte, MPI_BYTE));
static_assert(is(type(DType::boolean), MPI_UINT8_T) && is(type(DType::u8), MPI_UINT8_T));
static_assert(is(type(DType::i8), MPI_INT8_T));
static_assert(is(type(DType::u16), MPI_UINT16_T) && is(type(DType::i16), MPI_INT16_T));
static_assert(is(type(DType::u32), MPI_UINT32_T) && is(type(DType::i32), MPI_INT32_T));
static_assert(is(type(DType::u64), MPI_UINT64_T) && is(type(DType::i64), MPI_INT64_T));
static_assert(is(type(DType::f16), MPI_UINT16_T) && is(type(DType::bf16), MPI_UINT16_T));
static_assert(is(type(DType::f32), MPI_FLOAT) && is(type(DType::f64), MPI_DOUBLE));
static_assert(is(type(DType::c64), MPI_C_FLOAT_COMPLEX));
static_assert(is(type(DType::c128), MPI_C_DOUBLE_COMPLEX));
static_assert(is(predefined(Predefined::sum), MPI_SUM));
static_assert(is(predefined(Predefined::product), MPI_PROD));
static_assert(is(predefined(Predefined::min), MPI_MIN) && is(predefined(Predefined::max), MPI_MAX));
static_assert(is(predefined(Predefined::band), MPI_BAND));
static_assert(is(predefined(Predefined::bor), MPI_BOR));
static_assert(is(predefined(Predefined::bxor), MPI_BXOR));
static_assert(ours.any_source == MPI_ANY_SOURCE);
static_assert(ours.tag_bound == MPI_TAG_UB);
static_assert(ours.levels[0] == MPI_THREAD_SINGLE && ours.levels[1] == MPI_THREAD_FUNNELED);
static_assert(ours.levels[2] == MPI_THREAD_SERIALIZED && ours.levels[3] == MPI_THREAD_MULTIPLE);
static_assert(sizeof(Status) >= sizeof(MPI_Status));
static_assert(ours.source * sizeof(int) == offsetof(MPI_Status, MPI_SOURCE));
static_assert(sizeof(MPI_Comm) == sizeof(int) && sizeof(MPI_Request) == sizeof(int));
static_assert(sizeof(MPI_Aint) == sizeof(std::ptrdiff_t) && sizeof(MPI_Count) == 8);

}  // namespace

/// Compared at run time, since neither side is a constant expression.
bool is_in_place_of_mpich() {
  return ours.in_place == reinterpret_cast<std::intptr_t>(MPI_IN_PLACE);
}

}  // namespace mccl::mpi
