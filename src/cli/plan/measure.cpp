#include "cli/plan/measure.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/bench/agree.h"
#include "cli/bench/local_job.h"
#include "cli/bench/report.h"
#include "cli/command.h"
#include "cli/kit/pipe.h"
#include "cli/plan/facts.h"
#include "mccl/error.h"

namespace mccl::cli::plan {
namespace {

/// Maximum size of the facts as text, in bytes. It fits into a pipe that is not read yet.
constexpr std::size_t kLongestTold = 16384;

void tell(const Costs& costs, int descriptor) {
  const std::string text = bench::costs_json(costs);
  const ssize_t n = ::write(descriptor, text.data(), text.size());
  if (n != static_cast<ssize_t>(text.size())) throw Error("cannot report the measured facts");
}

}  // namespace

std::optional<schedule::Facts> measure(int ranks) {
  const Config config = Config::from_environment();
  if (!config.calibrate) {
    throw InvalidArgument(
        "--measure: MCCL_CALIBRATE disables measurements; unset it, or leave out "
        "--measure");
  }
  Pipe pipe = make_pipe();
  const int status = bench::run_local_job(ranks, "mccl plan", config, [&](Context& context) {
    bench::meet(*context.world());  // The ranks have agreed on the facts after this.
    if (context.rank() == 0) tell(context.costs(), pipe.writer.get());
  });
  pipe.writer.close();
  if (status != kGood) return {};
  std::string text(kLongestTold, '\0');
  const ssize_t n = read_some(pipe.reader.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return facts_of_json(nlohmann::json::parse(text), ranks);
}

}  // namespace mccl::cli::plan
