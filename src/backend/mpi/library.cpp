#include "backend/mpi/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>

namespace mccl::mpi {
namespace {

static_assert(std::endian::native == std::endian::little);

/// The names of Open MPI's variables, in the order of DType and of Predefined.
constexpr const char* kTypes[] = {
    "ompi_mpi_uint8_t", "ompi_mpi_uint8_t",         "ompi_mpi_int8_t",          "ompi_mpi_uint16_t",
    "ompi_mpi_int16_t", "ompi_mpi_uint32_t",        "ompi_mpi_int32_t",         "ompi_mpi_uint64_t",
    "ompi_mpi_int64_t", "ompi_mpi_uint16_t",        "ompi_mpi_uint16_t",        "ompi_mpi_float",
    "ompi_mpi_double",  "ompi_mpi_c_float_complex", "ompi_mpi_c_double_complex"};
constexpr const char* kPredefined[] = {"ompi_mpi_op_sum", "ompi_mpi_op_prod", "ompi_mpi_op_min",
                                       "ompi_mpi_op_max", "ompi_mpi_op_band", "ompi_mpi_op_bor",
                                       "ompi_mpi_op_bxor"};
static_assert(std::size(kTypes) == kDTypeCount && std::size(kPredefined) == kPredefinedCount);

/// Adds Open MPI's handles, which are the addresses of variables in `file`, to `abi`. Returns other
/// ABIs unchanged.
Abi completed(Abi abi, const SharedLibrary& file) {
  if (abi.world != 0) return abi;
  const auto handle = [&](const char* name) {
    return reinterpret_cast<Handle>(file.variable(name));
  };
  abi.world = handle("ompi_mpi_comm_world");
  abi.self = handle("ompi_mpi_comm_self");
  abi.errors_return = handle("ompi_mpi_errors_return");
  abi.no_request = handle("ompi_request_null");
  abi.byte = handle("ompi_mpi_byte");
  std::ranges::transform(kTypes, abi.types, handle);
  std::ranges::transform(kPredefined, abi.predefined, handle);
  return abi;
}

/// Returns the name and version of the library, such as "Open MPI 4.1.4".
std::string version_of(const Function<char*, int*>& get_library_version) {
  char text[8192] = {};
  int length = 0;
  get_library_version(text, &length);
  return short_version(std::string_view(text));
}

}  // namespace

std::string_view name_of(ThreadLevel level) {
  constexpr std::string_view kNames[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                         "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
  return kNames[static_cast<int>(level)];
}

std::string short_version(std::string_view text) {
  std::string line(text.substr(0, text.find_first_of(",\n")));
  for (const std::string_view noise : {"Version:", "Library", "(R)"}) {
    if (const auto found = line.find(noise); found != line.npos) line.erase(found, noise.size());
  }
  std::replace(line.begin(), line.end(), '\t', ' ');
  if (const auto v = line.find(" v"); v != line.npos && std::isdigit(line[v + 2])) {
    line.erase(v + 1, 1);
  }
  line.erase(
      std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
      line.end());
  while (line.ends_with(' ') || line.ends_with('\0')) line.pop_back();
  return line;
}

MpiLibrary::MpiLibrary(const SharedLibrary& file, const Abi& abi)
    : file_(file), abi_(completed(abi, file)), identity_{"", file.path(), abi.name} {
  identity_.version = version_of(Get_library_version);
}

void* MpiLibrary::in_place() const {
  return reinterpret_cast<void*>(abi_.in_place);  // NOLINT(performance-no-int-to-ptr): as MPI does
}

bool MpiLibrary::flag(const Function<int*>& function) const {
  int value = 0;
  function(&value);
  return value != 0;
}

ThreadLevel MpiLibrary::level_of(int number) const {
  int level = 3;
  while (level > 0 && abi_.levels[level] > number) --level;
  return static_cast<ThreadLevel>(level);
}

ThreadLevel MpiLibrary::init(ThreadLevel wanted) const {
  int provided = 0;
  Init_thread(nullptr, nullptr, abi_.levels[static_cast<int>(wanted)], &provided);
  return level_of(provided);
}

ThreadLevel MpiLibrary::level() const {
  int provided = 0;
  Query_thread(&provided);
  return level_of(provided);
}

int MpiLibrary::rank(Comm comm) const {
  int value = 0;
  Comm_rank(comm, &value);
  return value;
}

int MpiLibrary::size(Comm comm) const {
  int value = 0;
  Comm_size(comm, &value);
  return value;
}

int MpiLibrary::largest_tag(Comm comm) const {
  void* value = nullptr;
  int found = 0;
  Comm_get_attr(comm, abi_.tag_bound, static_cast<void*>(&value), &found);
  // Without the attribute, assume the smallest value of MPI_TAG_UB that MPI allows.
  return found ? *static_cast<int*>(value) : 32767;
}

Handle MpiLibrary::duplicate(Comm comm) const {
  Handle made = 0;
  Comm_dup(comm, &made);
  return made;
}

Handle MpiLibrary::create_group(Comm comm, const int* ranks, int count, int tag) const {
  Handle all = 0, some = 0, made = 0;
  Comm_group(comm, &all);
  Group_incl(all, count, ranks, &some);
  Comm_create_group(comm, some, tag, &made);
  Group_free(&some);
  Group_free(&all);
  return made;
}

Handle MpiLibrary::create_long_type(std::size_t bytes) const {
  // The first part of the type consists of pieces of 1 GiB, so that their number fits an int. The
  // second part consists of the remaining bytes.
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  Handle piece = 0, whole = 0;
  Type_contiguous(static_cast<int>(kPiece), abi_.byte, &piece);
  const int counts[] = {static_cast<int>(bytes / kPiece), static_cast<int>(bytes % kPiece)};
  const std::intptr_t offsets[] = {0, static_cast<std::intptr_t>(bytes / kPiece * kPiece)};
  const Handle pointers[] = {piece, abi_.byte};
  const int numbers[] = {static_cast<int>(piece), static_cast<int>(abi_.byte)};
  const void* const parts = abi_.handles_are_numbers ? static_cast<const void*>(numbers) : pointers;
  Type_create_struct(2, counts, offsets, parts, &whole);
  Type_free(&piece);
  Type_commit(&whole);
  return whole;
}

bool MpiLibrary::test(Request& request) const {
  Status status;
  int done = 0;
  Test(&request, &done, &status);
  return done != 0;
}

std::optional<Arrival> MpiLibrary::match(int source, int tag, Comm comm) const {
  Status status;
  int found = 0;
  Arrival arrival;
  Improbe(source, tag, comm, &found, &arrival.message, &status);
  if (!found) return std::nullopt;
  std::int64_t bytes = 0;
  Get_elements_x(&status, abi_.byte, &bytes);
  arrival.source = status.words[abi_.source];
  arrival.bytes = static_cast<std::size_t>(bytes);
  return arrival;
}

Handle MpiLibrary::receive(Out memory, int count, Type type, Handle message) const {
  Request request = 0;
  Imrecv(memory, count, type, &message, &request);
  return request;
}

void MpiLibrary::fail(const char* function, int code) const {
  char text[1024] = {};  // longer than any ABI's MPI_MAX_ERROR_STRING
  int length = 0;
  Error_string(code, text, &length);
  throw Error(
      fmt::format("{} failed with {} ({})", function, std::string_view(text), identity_.version));
}

}  // namespace mccl::mpi
