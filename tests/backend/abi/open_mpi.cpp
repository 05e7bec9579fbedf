// Compiled where Open MPI's header is installed, to check this project's declarations of its ABI
// against that header. There is nothing to run.
#include <mpi.h>

#include <cstddef>

#include "backend/mpi/abi.h"

namespace {

constexpr const mccl::mpi::Abi& ours = mccl::mpi::kOpenMpi;

static_assert(!ours.handles_are_numbers);
static_assert(ours.any_source == MPI_ANY_SOURCE);
static_assert(ours.tag_bound == MPI_TAG_UB);
static_assert(ours.levels[0] == MPI_THREAD_SINGLE && ours.levels[1] == MPI_THREAD_FUNNELED);
static_assert(ours.levels[2] == MPI_THREAD_SERIALIZED && ours.levels[3] == MPI_THREAD_MULTIPLE);
static_assert(sizeof(mccl::mpi::Status) >= sizeof(MPI_Status));
static_assert(ours.source * sizeof(int) == offsetof(MPI_Status, MPI_SOURCE));
static_assert(sizeof(MPI_Comm) == sizeof(void*) && sizeof(MPI_Request) == sizeof(void*));
static_assert(sizeof(MPI_Aint) == sizeof(std::ptrdiff_t) && sizeof(MPI_Count) == 8);

}  // namespace

/// Compared at run time, since neither side is a constant expression.
bool is_in_place() { return ours.in_place == reinterpret_cast<std::intptr_t>(MPI_IN_PLACE); }

/// Checks that variables of these names exist.
const void* const kVariables[] = {&ompi_mpi_comm_world,
                                  &ompi_mpi_comm_self,
                                  &ompi_mpi_errors_return,
                                  &ompi_request_null,
                                  &ompi_mpi_byte,
                                  &ompi_mpi_uint8_t,
                                  &ompi_mpi_int8_t,
                                  &ompi_mpi_uint16_t,
                                  &ompi_mpi_int16_t,
                                  &ompi_mpi_uint32_t,
                                  &ompi_mpi_int32_t,
                                  &ompi_mpi_uint64_t,
                                  &ompi_mpi_int64_t,
                                  &ompi_mpi_float,
                                  &ompi_mpi_double,
                                  &ompi_mpi_c_float_complex,
                                  &ompi_mpi_c_double_complex,
                                  &ompi_mpi_op_sum,
                                  &ompi_mpi_op_prod,
                                  &ompi_mpi_op_min,
                                  &ompi_mpi_op_max,
                                  &ompi_mpi_op_band,
                                  &ompi_mpi_op_bor,
                                  &ompi_mpi_op_bxor};
