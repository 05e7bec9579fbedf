#include <algorithm>
#include <memory>

#include "backend/mpi/abis.h"
#include "backend/mpi/library_of.h"
#include "backend/mpi/open_mpi_abi.h"

namespace mccl::mpi {
namespace {

// kTypes is in the order of DType, kOperations in that of Predefined.
constexpr const char* kTypes[] = {
    "ompi_mpi_uint8_t", "ompi_mpi_uint8_t",         "ompi_mpi_int8_t",          "ompi_mpi_uint16_t",
    "ompi_mpi_int16_t", "ompi_mpi_uint32_t",        "ompi_mpi_int32_t",         "ompi_mpi_uint64_t",
    "ompi_mpi_int64_t", "ompi_mpi_uint16_t",        "ompi_mpi_uint16_t",        "ompi_mpi_float",
    "ompi_mpi_double",  "ompi_mpi_c_float_complex", "ompi_mpi_c_double_complex"};
constexpr const char* kOperations[] = {"ompi_mpi_op_sum", "ompi_mpi_op_prod", "ompi_mpi_op_min",
                                       "ompi_mpi_op_max", "ompi_mpi_op_band", "ompi_mpi_op_bor",
                                       "ompi_mpi_op_bxor"};

struct OpenMpiAbi {
  using Comm = void*;
  using Group = void*;
  using Type = void*;
  using Op = void*;
  using Request = void*;
  using Errors = void*;
  using Status = open_mpi::Status;
  static constexpr const char* kName = "Open MPI's ABI";

  static Constants constants(const SharedLibrary& file) {
    const auto handle = [&](const char* name) { return handle_of(file.variable(name)); };
    Constants own;
    own.world = handle("ompi_mpi_comm_world");
    own.self = handle("ompi_mpi_comm_self");
    own.errors_return = handle("ompi_mpi_errors_return");
    own.no_request = handle("ompi_request_null");
    own.byte = handle("ompi_mpi_byte");
    std::transform(std::begin(kTypes), std::end(kTypes), own.types, handle);
    std::transform(std::begin(kOperations), std::end(kOperations), own.predefined, handle);
    own.in_place = open_mpi::kInPlace;
    own.any_source = open_mpi::kAnySource;
    own.tag_bound = open_mpi::kTagBound;
    own.truncated = open_mpi::kTruncated;
    std::copy(std::begin(open_mpi::kLevels), std::end(open_mpi::kLevels), own.levels);
    return own;
  }
};

static_assert(std::size(kTypes) == kDTypeCount && std::size(kOperations) == kPredefinedCount);

}  // namespace

std::unique_ptr<Library> open_mpi_library(const SharedLibrary& file) {
  return std::make_unique<LibraryOf<OpenMpiAbi>>(file);
}

}  // namespace mccl::mpi
