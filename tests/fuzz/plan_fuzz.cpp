// The files that mccl plan reads. The first byte selects a result of mccl bench or a list of
// cables. A valid file must give a plan.
#include <numeric>
#include <vector>

#include "base/cabling.h"
#include "cli/plan/facts.h"
#include "input.h"
#include "mccl/error.h"
#include "schedule/cable_map.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::cli;
  mccl::fuzz::Input input(data, size);
  const std::size_t kind = input.byte();
  try {
    if (kind % 2 == 0) {
      const plan::MeasuredRun run = plan::parse_run(std::string(input.text()), "a file");
      mccl::fuzz::require(!run.rows.empty() && run.ranks > 0, "a run of nothing");
      // A plan for many ranks takes long.
      if (run.ranks > 8 || run.rows.size() > 4) return 0;
      mccl::fuzz::require(plan::compare(run).size() == run.rows.size(), "a row without a plan");
    } else {
      const int ranks = 1 + static_cast<int>(kind / 2 % 8);
      const mccl::Cabling cabling = plan::parse_links(input.text(), "a file", ranks);
      mccl::fuzz::require(cabling.size() == ranks, "cables of other ranks");
      std::vector<int> everyone(static_cast<std::size_t>(ranks));
      std::iota(everyone.begin(), everyone.end(), 0);
      const mccl::schedule::CableMap map(cabling, everyone, 1e-5, 1e9);
      mccl::fuzz::require(!plan::links_text(cabling, &map).empty(), "a text of nothing");
    }
  } catch (const mccl::InvalidArgument&) {
  }
  return 0;
}
