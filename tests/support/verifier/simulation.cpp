#include "support/verifier/simulation.h"

#include <fmt/format.h>

#include <utility>

#include "schedule/layout.h"
#include "support/verifier/defect.h"

namespace mccl::schedule {

Simulation::Simulation(std::span<const Problem> problems, std::span<const Schedule> schedules,
                       const Exchange& exchange, Reading reading)
    : problems_(problems),
      schedules_(schedules),
      exchange_(exchange),
      expressions_(static_cast<int>(problems.size())),
      windows_(problems, schedules, layouts_, reading) {
  for (std::size_t r = 0; r < problems.size(); ++r) prepare_memory(r);
}

void Simulation::fail_at(std::uint32_t number, const std::string& what) const {
  const int rank = exchange_.rank_of(number);
  fail(problems_[rank], schedules_[rank], exchange_.index_of(number), what);
}

void Simulation::prepare_memory(std::size_t rank) {
  const Problem& p = problems_[rank];
  layouts_.push_back(layout_of(p));
  const Layout& layout = layouts_.back();
  memories_.emplace_back(Layout::kEnd);
  const bool gives_output = p.collective == Collective::broadcast && p.rank == p.root;
  const Memory::Run contribution{gives_output ? layout.output_count : layout.input_count,
                                 Value{expressions_.leaf(p.rank), false, 0}};
  memories_.back().write(gives_output ? layout.output_base : layout.input_base, {&contribution, 1});
}

void Simulation::run(std::span<const std::uint32_t> order) {
  for (const std::uint32_t event : order) run_event(event);
  windows_.end();
}

void Simulation::run_event(std::uint32_t event) {
  const Step& step = exchange_.step(event);
  const int rank = exchange_.rank_of(event);
  windows_.begin_step(rank, exchange_.index_of(event));
  switch (step.kind) {
    case StepKind::send:
      read(event, exchange_.step(event).src, incoming_);
      return deliver(exchange_.partner(event));
    case StepKind::copy:
    case StepKind::decode:
      return copy(event);
    case StepKind::encode:
      return encode(event);
    case StepKind::fold_coded:
      return fold_coded(event);
    case StepKind::fold:
      return fold(event);
    case StepKind::publish:
      return publish(event);
    case StepKind::arrive:
      return windows_.arrive(rank);
    case StepKind::await:
      return windows_.await(rank, step);
    case StepKind::await_readers:
      return windows_.await_readers(rank, step);
    case StepKind::read:
      return read_window(event);
    case StepKind::read_fold:
      return read_fold(event);
    case StepKind::recv:
    case StepKind::recv_reduce:
      break;  // done together with its send
  }
}

void Simulation::deliver(std::uint32_t receive) {
  const Step& step = exchange_.step(receive);
  windows_.begin_step(exchange_.rank_of(receive), exchange_.index_of(receive));
  if (step.kind == StepKind::recv) return write(receive, step.dst, incoming_);
  const bool peer_first = step.peer < exchange_.rank_of(receive);
  read(receive, step.src, local_);
  result_.clear();
  zip(local_, incoming_, [&](std::size_t count, const Value& mine, const Value& theirs) {
    require_addable(receive, mine, theirs);
    const Value& first = peer_first ? theirs : mine;
    const Value& second = peer_first ? mine : theirs;
    Value sum{expressions_.sum(first.expression, second.expression), false, mine.element};
    if (step.completes) sum = completed(receive, sum);
    result_.push_back({count, sum});
  });
  write(receive, step.dst, result_);
}

void Simulation::copy(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  read(number, step.src, incoming_);
  for (Memory::Run& run : incoming_) {
    if (step.completes) run.value = completed(number, run.value);
  }
  write(number, step.dst, incoming_);
}

void Simulation::fold(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  const std::size_t length = step.dst.count;
  for (std::uint32_t operand = 0; operand < step.operands; ++operand) {
    read(number, {step.src.space, step.src.offset + operand * length, length}, incoming_);
    operand == 0 ? begin_fold() : add_operand(number);
  }
  end_fold(number);
}

void Simulation::encode(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  read(number, step.src, incoming_);
  for (Memory::Run& run : incoming_) {
    require_whole_node(number, run.value);
    run.value.expression = expressions_.coded(run.value.expression, number);
  }
  require_elements(number, incoming_);
  write(number, step.dst, incoming_);
}

void Simulation::fold_coded(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  const std::size_t block = problems_[exchange_.rank_of(number)].coding.block();
  const std::size_t stride = divide_up(step.dst.count, block) * block;
  for (std::uint32_t operand = 0; operand < step.operands; ++operand) {
    read(number, {step.src.space, step.src.offset + operand * stride, step.dst.count}, incoming_);
    operand == 0 ? begin_fold() : add_operand(number);
  }
  require_elements(number, result_);
  if (holds_blocks(step.dst.space)) {
    for (Memory::Run& run : result_)
      run.value.expression = expressions_.coded(run.value.expression, number);
  }
  end_fold(number);
}

/// If the ranks of a node meet in its window, their contributions must be summed there before the
/// sum is rounded.
void Simulation::require_whole_node(std::uint32_t number, const Value& value) const {
  const int rank = exchange_.rank_of(number);
  if (schedules_[rank].arrivals == 0) return;
  const auto members = static_cast<int>(node_members(problems_[rank], rank).size());
  const int found = expressions_.contributions(value.expression);
  if (found == members) return;
  fail_at(number, fmt::format("rounds what {} of the {} ranks of the node give", found, members));
}

/// The rounding error of a step is stored by element index, so the step must read exactly the
/// elements that it names.
void Simulation::require_elements(std::uint32_t number, const Runs& runs) const {
  std::size_t expected = exchange_.step(number).element;
  for (const Memory::Run& run : runs) {
    if (run.value.element != expected) {
      fail_at(number, fmt::format("says that it takes element {}, but has element {}", expected,
                                  run.value.element));
    }
    expected += run.count;
  }
}

/// Starts a fold with incoming_ as its first operand.
void Simulation::begin_fold() {
  result_ = incoming_;
  for (Memory::Run& run : result_) {
    run.value.expression = expressions_.begin_fold(run.value.expression);
  }
}

void Simulation::add_operand(std::uint32_t number) {
  local_.clear();
  zip(result_, incoming_, [&](std::size_t count, const Value& sum, const Value& next) {
    require_addable(number, sum, next);
    const auto more = expressions_.add_to_fold(sum.expression, next.expression);
    local_.push_back({count, {more, false, sum.element}});
  });
  std::swap(result_, local_);
}

void Simulation::end_fold(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  for (Memory::Run& run : result_) {
    if (step.completes) run.value = completed(number, run.value);
  }
  write(number, step.dst, result_);
}

void Simulation::publish(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  read(number, step.src, incoming_);
  windows_.publish(exchange_.rank_of(number), step, incoming_);
}

void Simulation::read_window(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  windows_.read(exchange_.rank_of(number), step.peer, step, step.src, incoming_);
  write(number, step.dst, incoming_);
}

void Simulation::read_fold(std::uint32_t number) {
  const Step& step = exchange_.step(number);
  const int rank = exchange_.rank_of(number);
  bool first = true;
  for (const int member : node_members(problems_[rank], rank)) {
    if (member == rank) {
      read(number, step.src, incoming_);
    } else {
      windows_.read(rank, member, step, step.src, incoming_);
    }
    std::exchange(first, false) ? begin_fold() : add_operand(number);
  }
  end_fold(number);
}

void Simulation::require_addable(std::uint32_t number, const Value& a, const Value& b) const {
  if (a.completed || b.completed) fail_at(number, "adds to a completed reduction");
  if (a.element != b.element) {
    fail_at(number, fmt::format("adds element {} to element {}", b.element, a.element));
  }
  if (!expressions_.disjoint(a.expression, b.expression)) {
    fail_at(number, fmt::format("adds a rank's element {} twice", a.element));
  }
}

Value Simulation::completed(std::uint32_t number, Value value) const {
  const int found = expressions_.contributions(value.expression);
  if (value.completed) fail_at(number, "completes what has been completed");
  if (found != static_cast<int>(problems_.size())) {
    fail_at(number, fmt::format("completes a reduction of {} contributions out of {}", found,
                                problems_.size()));
  }
  value.completed = true;
  return value;
}

void Simulation::read(std::uint32_t number, const Region& region, Runs& runs) const {
  const int rank = exchange_.rank_of(number);
  runs.clear();
  memories_[rank].read(layouts_[rank].address(region), region.count, runs);
  for (const Memory::Run& run : runs) {
    if (run.value.expression == Expressions::kNothing) {
      fail_at(number, "reads memory that holds nothing yet");
    }
  }
}

void Simulation::write(std::uint32_t number, const Region& region, const Runs& runs) {
  const int rank = exchange_.rank_of(number);
  windows_.write(rank, region);
  memories_[rank].write(layouts_[rank].address(region), runs);
}

void Simulation::read_output(int rank, std::size_t offset, std::size_t count, Runs& runs) const {
  runs.clear();
  memories_[rank].read(layouts_[rank].output_base + offset, count, runs);
}

}  // namespace mccl::schedule
