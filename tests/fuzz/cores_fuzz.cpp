// Texts about cores: those that another rank has published, and those of the kernel's files.
#include <span>

#include "base/cores.h"
#include "input.h"
#include "rendezvous/connections/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl;
  std::string_view text = fuzz::Input(data, size).text();
  const std::string_view first = rendezvous::next_part(text, '\0');
  if (const auto cores = parse_cores(first)) {
    fuzz::require(serialise(*cores) == first, "serialise writes something else");
    fuzz::require(cores->quota >= 0, "a negative quota");
    const double shared = processes_per_core(std::span(&*cores, 1), 4);
    fuzz::require(shared > 0 && patience_of(shared) >= 1, "less than no patience");
  }
  fuzz::require(quota_of_cpu_max(first) >= 0, "a negative quota");
  fuzz::require(quota_of_cfs(first, text) >= 0, "a negative quota");
  for (const char* controller : {"", "cpu"}) {
    const std::string path = control_group_path(first, controller);
    mccl::fuzz::require(path.empty() || path.front() == '/', "a path without a slash");
  }
  return 0;
}
