#include <algorithm>
#include <memory>

#include "backend/mpi/abis.h"
#include "backend/mpi/library_of.h"
#include "backend/mpi/standard_abi.h"

namespace mccl::mpi {
namespace {

using namespace standard;

// kTypes is in the order of DType, kOperations in that of Predefined.
constexpr Handle kTypes[] = {kUint8,  kUint8, kInt8,   kUint16,       kInt16,
                             kUint32, kInt32, kUint64, kInt64,        kUint16,
                             kUint16, kFloat, kDouble, kFloatComplex, kDoubleComplex};
constexpr Handle kOperations[] = {kSum, kProduct, kMin, kMax, kBand, kBor, kBxor};
static_assert(std::size(kTypes) == kDTypeCount && std::size(kOperations) == kPredefinedCount);

struct StandardAbi {
  using Comm = void*;
  using Group = void*;
  using Type = void*;
  using Op = void*;
  using Request = void*;
  using Errors = void*;
  using Status = standard::Status;
  static constexpr const char* kName = "the ABI of MPI 5";

  static Constants constants(const SharedLibrary&) {
    Constants own;
    own.world = kWorld;
    own.self = kSelf;
    own.errors_return = kErrorsReturn;
    own.no_request = kNoRequest;
    own.byte = kByte;
    std::copy(std::begin(kTypes), std::end(kTypes), own.types);
    std::copy(std::begin(kOperations), std::end(kOperations), own.predefined);
    own.in_place = kInPlace;
    own.any_source = kAnySource;
    own.tag_bound = kTagBound;
    own.truncated = kTruncated;
    std::copy(std::begin(kLevels), std::end(kLevels), own.levels);
    return own;
  }
};

}  // namespace

std::unique_ptr<Library> standard_library(const SharedLibrary& file) {
  return std::make_unique<LibraryOf<StandardAbi>>(file);
}

}  // namespace mccl::mpi
