#include <algorithm>
#include <memory>

#include "backend/mpi/abis.h"
#include "backend/mpi/library_of.h"
#include "backend/mpi/mpich_abi.h"

namespace mccl::mpi {
namespace {

using namespace mpich;

// kTypes is in the order of DType, kOperations in that of Predefined.
constexpr int kTypes[] = {kUint8,  kUint8, kInt8,   kUint16,       kInt16,
                          kUint32, kInt32, kUint64, kInt64,        kUint16,
                          kUint16, kFloat, kDouble, kFloatComplex, kDoubleComplex};
constexpr int kOperations[] = {kSum, kProduct, kMin, kMax, kBand, kBor, kBxor};
static_assert(std::size(kTypes) == kDTypeCount && std::size(kOperations) == kPredefinedCount);

struct MpichAbi {
  using Comm = int;
  using Group = int;
  using Type = int;
  using Op = int;
  using Request = int;
  using Errors = int;
  using Status = mpich::Status;
  static constexpr const char* kName = "MPICH's ABI";

  static Constants constants(const SharedLibrary&) {
    Constants own;
    own.world = handle_of(kWorld);
    own.self = handle_of(kSelf);
    own.errors_return = handle_of(kErrorsReturn);
    own.no_request = handle_of(kNoRequest);
    own.byte = handle_of(kByte);
    std::transform(std::begin(kTypes), std::end(kTypes), own.types, handle_of<int>);
    std::transform(std::begin(kOperations), std::end(kOperations), own.predefined, handle_of<int>);
    own.in_place = kInPlace;
    own.any_source = kAnySource;
    own.tag_bound = kTagBound;
    own.truncated = kTruncated;
    std::copy(std::begin(kLevels), std::end(kLevels), own.levels);
    return own;
  }
};

}  // namespace

std::unique_ptr<Library> mpich_library(const SharedLibrary& file) {
  return std::make_unique<LibraryOf<MpichAbi>>(file);
}

}  // namespace mccl::mpi
