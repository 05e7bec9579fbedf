#include "cli/launch/mlx_build.h"

#include <filesystem>
#include <string_view>
#include <system_error>

namespace mccl::cli::launch {
namespace {

namespace fs = std::filesystem;

/// Folders in `folder` whose names begin so.
template <typename Visit>
void each_in(const fs::path& folder, std::string_view begin, Visit&& visit) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(begin)) visit(entry.path());
}

bool has_gpu(const fs::path& devices) {
  std::error_code unknown;
  // The second is what Linux under Windows has.
  return fs::exists(devices / "nvidiactl", unknown) || fs::exists(devices / "dxg", unknown);
}

}  // namespace

bool runs_mlx_on_cuda(const std::string& python, const std::string& devices) {
  if (!has_gpu(devices)) return false;
  bool found = false;
  const fs::path prefix = fs::path(python).parent_path().parent_path();
  each_in(prefix, "lib", [&](const fs::path& lib) {
    each_in(lib, "python3", [&](const fs::path& version) {
      for (const char* packages : {"site-packages", "dist-packages"})
        each_in(version / packages, "mlx_cuda", [&](const fs::path&) { found = true; });
    });
  });
  return found;
}

}  // namespace mccl::cli::launch
