// A group of one: every collective is a copy, and a collective in place does nothing.
#include "schedule/algorithms.h"
#include "schedule/builder.h"

namespace mccl::schedule {

Schedule build_alone(const Problem& p) {
  ScheduleBuilder builder(p);
  const Layout layout = layout_of(p);
  if (layout.input_count != 0) {
    const Extent all{0, layout.output_count};
    builder.copy_pieces(input(all), output(all), is_reduction(p.collective));
  }
  return builder.finish();
}

}  // namespace mccl::schedule
