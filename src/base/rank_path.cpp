#include "base/rank_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/value_text.h"

namespace mccl {

std::string path_of_rank(std::string_view setting, int rank, std::string_view host,
                         std::string_view extension) {
  std::string path;
  bool has_rank = false;
  for (std::size_t i = 0; i < setting.size(); ++i) {
    const char next = setting[i] == '%' && i + 1 < setting.size() ? setting[++i] : '\0';
    switch (next) {
      case 'r':
        has_rank = true;
        path += std::to_string(rank);
        break;
      case 'h':
        path += host;
        break;
      case 'p':
        path += std::to_string(::getpid());
        break;
      case '\0':
        path += setting[i];
        break;
      default:  // "%%" is a percent sign; any other pair stays as it is
        path += next == '%' ? "%" : std::string{'%', next};
    }
  }
  std::error_code ignored;
  const bool is_folder = path.ends_with('/') || std::filesystem::is_directory(path, ignored);
  if (is_folder && !path.ends_with('/')) path += '/';
  if (is_folder) return fmt::format("{}mccl-{}-{}{}", path, host, rank, extension);
  return has_rank ? path : fmt::format("{}.{}", path, rank);
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return printable(name);
}

}  // namespace mccl
