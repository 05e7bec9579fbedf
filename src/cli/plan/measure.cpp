#include "cli/plan/measure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/descriptor.h"
#include "cli/bench/run.h"
#include "cli/command.h"
#include "cli/plan/facts.h"
#include "mccl/config.h"
#include "mccl/error.h"

namespace mccl::cli::plan {
namespace {

/// A temporary file for the result of `mccl bench`.
class ResultFile {
 public:
  ResultFile() {
    path_ = (std::filesystem::temp_directory_path() / "mccl-plan.XXXXXX").string();
    const Descriptor file(::mkstemp(path_.data()));
    if (!file) throw Error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  ~ResultFile() { ::unlink(path_.c_str()); }
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::optional<schedule::Facts> measure(int ranks) {
  if (!Config::from_environment().calibrate) {
    throw InvalidArgument(
        "--measure: MCCL_CALIBRATE disables measurements; unset it, or leave out "
        "--measure");
  }
  const ResultFile file;
  // A job measures its costs when it starts, and its ranks agree on them in the first collective.
  const int status = bench::run_here(ranks, "mccl plan",
                                     {"bench", "--one-host", "--quiet", "barrier", "--iterations",
                                      "1", "--warmup", "0", "--no-bounds", "--json", file.path()});
  if (status != kGood) return {};
  return facts_of_json(nlohmann::json::parse(std::ifstream(file.path())).at("costs"), ranks);
}

}  // namespace mccl::cli::plan
