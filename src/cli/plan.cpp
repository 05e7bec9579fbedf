#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value_text.h"
#include "cli/bench/bounds.h"
#include "cli/bench/routine.h"
#include "cli/command.h"
#include "cli/kit/file.h"
#include "cli/kit/quantity.h"
#include "cli/plan/answer.h"
#include "cli/plan/facts.h"
#include "mccl/error.h"
#include "schedule/cable_map.h"

namespace mccl::cli::plan {
namespace {

constexpr int kMostMeasuredRanks = 64;
constexpr std::size_t kUsualWindow = std::size_t{1} << 20;
constexpr double kTolerance = 30;

constexpr const char* kSummary =
    "Predict the schedule and the time of a call, without making the call";

constexpr const char* kFooter =
    R"(Every call uses the schedule that a cost model predicts to be fastest. The parameters of the
model are called facts. A job measures them when it starts. This command assumes usual values; with
--measure, it measures this machine.

The table:
  size, count      as in mccl bench
  algorithm        the schedule; chunk: the largest message or piece of a transfer
  steps            steps of the rank with the most steps; ~ marks an estimate
  sent, received   bytes through links, on the rank with the most bytes
  published, read  bytes that a rank writes into its own window, and reads from the windows of the
                   other ranks on its node; a window is memory that the ranks of a node share
  time             predicted time; algbw, busbw: as in mccl bench
--compare shows "left out" beside algorithms that are cheaper than the chosen one but not allowed.
On cables, these are algorithms for which other ranks would forward data. If all ranks share a
window, they are algorithms over links. If a codec requires the algorithm hierarchical, or a small
sum the algorithm direct, they are all others. With many ranks, schedules are built only for the
root and some other ranks.

Examples:
  mccl plan --ranks 4                          all_reduce among 4 processes of this machine
  mccl plan --ranks 4 --measure                the same, with values measured on this machine
  mccl plan all --ranks 1024 --ranks-per-node 8 --link-rate 10Gbit --link-latency 15us
  mccl plan all_reduce --ranks 16 --nodes 4 --sizes 1M --compare
  mccl plan all --ranks 4 --links cables.json  machines with a cable from each to the next
To check the model on this machine:
  mccl bench all_reduce,broadcast --json measured.json
  mccl plan --check measured.json --within 30

Exit status: 0 success, 1 deviations above --within, or a failed measurement, 2 bad arguments.)";

/// Values of the flags. An empty or absent value means that the default applies.
struct PlanFlags {
  bench::CallFlags calls;
  int ranks = 2;
  std::optional<int> nodes;
  std::optional<int> ranks_per_node;
  std::string link_latency;
  std::string link_rate;
  std::string algorithm = "auto";
  std::string compression = "none";
  std::string window;
  std::string links;  ///< Path of the JSON file that describes the cables.
  std::optional<unsigned> cores;
  std::vector<std::string> facts;
  bool in_place = false;
  bool compare = false;
  bool measure = false;
  std::string check;
  std::optional<double> within;
  std::string json;
};

std::string read_named(std::string_view flag, const std::string& path, std::string_view expected) {
  return read_file(fmt::format("{}: cannot read {}", flag, in_quotes(path)), path, expected);
}

std::vector<Question> questions_of(const PlanFlags& flags) {
  bench::Options calls = bench::parse_calls(flags.calls, {}, bench::kSendrecv);
  if (std::erase(calls.routines, bench::kSendrecv) > 0 &&
      std::ranges::find(flags.calls.routines, "all") == flags.calls.routines.end()) {
    throw InvalidArgument(
        "sendrecv is not a collective, so mccl plan cannot predict it; choose a collective");
  }
  if (calls.root >= flags.ranks) {
    throw InvalidArgument(
        fmt::format("--root {}: the ranks are 0 to {}", calls.root, flags.ranks - 1));
  }
  std::vector<Question> questions;
  for (const bench::Routine routine : calls.routines) {
    for (const std::size_t size : calls.sizes) {
      questions.push_back({.routine = routine,
                           .shape = bench::shape_of(routine, size, calls.dtype, flags.ranks),
                           .dtype = calls.dtype,
                           .op = calls.op.kind,
                           .ranks = flags.ranks,
                           .root = calls.root,
                           .in_place = flags.in_place,
                           .compression = compression_named(flags.compression)});
      if (routine == bench::Routine::barrier) break;
    }
  }
  return questions;
}

/// All ranks share one node by default, like those of mccl bench.
int ranks_per_node(const PlanFlags& flags) {
  if (!flags.links.empty()) return 1;
  if (flags.ranks_per_node) return std::min(*flags.ranks_per_node, flags.ranks);
  const int nodes = flags.nodes.value_or(1);
  if (nodes > flags.ranks) {
    throw InvalidArgument(
        fmt::format("--nodes {}: {} ranks use at most {} nodes", nodes, flags.ranks, flags.ranks));
  }
  const int per_node = (flags.ranks + nodes - 1) / nodes;
  if ((flags.ranks + per_node - 1) / per_node != nodes) {
    throw InvalidArgument(fmt::format(
        "--nodes {0}: {1} ranks, {2} on each node, do not fill {0} nodes; give --ranks-per-node",
        nodes, flags.ranks, per_node));
  }
  return per_node;
}

struct Basis {
  schedule::Facts facts;
  std::string origin;
  Cabling cabling = {};  ///< The cables that the file of --links describes.
};

/// Returns the measured facts, but with `nodes`, the node of each rank according to the flags.
Basis measured_basis(schedule::Facts measured, std::vector<int> nodes) {
  const bool shares = !measured.nodes.empty();
  const bool one_node = std::ranges::all_of(nodes, [](int node) { return node == 0; });
  std::string origin =
      fmt::format("measured here{}", shares ? "" : ", where no ranks share memory");
  if (!one_node && shares) origin += "; values of links between nodes are assumed";
  measured.nodes = one_node && !shares ? std::vector<int>() : std::move(nodes);
  return {std::move(measured), std::move(origin)};
}

Basis basis_of(const PlanFlags& flags, const std::optional<schedule::Facts>& measured) {
  std::vector<int> nodes = nodes_of(flags.ranks, ranks_per_node(flags));
  Basis basis{.facts = {}, .origin = "assumed"};
  if (measured) {
    basis = measured_basis(*measured, std::move(nodes));
  } else {
    basis.facts.nodes = std::move(nodes);
    basis.facts.window_bytes = kUsualWindow;
  }
  schedule::Facts& facts = basis.facts;
  const unsigned cores = flags.cores.value_or(bench::core_count());
  facts.ranks_per_core = std::max(1.0, static_cast<double>(fullest_node(facts)) / cores);
  if (!flags.link_latency.empty())
    facts.latency_s = parse_seconds("--link-latency", flags.link_latency);
  if (!flags.link_rate.empty()) facts.bytes_per_s = parse_rate("--link-rate", flags.link_rate);
  if (!flags.window.empty()) set_fact(facts, "--window", "window_bytes", flags.window);
  for (const std::string& fact : flags.facts) set_fact(facts, fact);
  if (!flags.links.empty()) {
    basis.cabling = parse_links(read_named("--links", flags.links, "a list of cables"), flags.links,
                                flags.ranks);
    if (!basis.cabling.is_one_network()) {
      std::vector<int> everyone(static_cast<std::size_t>(flags.ranks));
      std::iota(everyone.begin(), everyone.end(), 0);
      facts.cables = std::make_shared<schedule::CableMap>(basis.cabling, everyone, facts.latency_s,
                                                          facts.bytes_per_s);
    }
  }
  // Ranks without a shared-memory window communicate only through links, even on one node. The
  // cost model expresses this by empty `nodes`.
  if (facts.window_bytes == 0) facts.nodes.clear();
  if (facts.nodes.empty()) facts.window_bytes = 0;
  if (flags.algorithm != "auto") {
    facts.forced =
        kind_of<schedule::Algorithm>("--algorithm", flags.algorithm, schedule::kAlgorithmCount);
  }
  return basis;
}

void check_links(const PlanFlags& flags) {
  if (!flags.links.empty()) {
    if (flags.nodes || flags.ranks_per_node || flags.measure)
      throw InvalidArgument(
          "--links: every rank is a separate machine; leave out --nodes, "
          "--ranks-per-node and --measure");
    return;
  }
  const bool given = !flags.link_latency.empty() || !flags.link_rate.empty();
  if (given && flags.window.empty() && ranks_per_node(flags) >= flags.ranks && flags.ranks > 1) {
    throw InvalidArgument(
        "--link-latency and --link-rate describe links between nodes, and there is only one node; "
        "give --nodes or --ranks-per-node");
  }
}

/// Describes the choice of --compression auto, and gives the reason.
std::string_view auto_text(const Question& question) {
  if (question.compression.if_faster) return "in bf16, which is predicted to be faster";
  return question.dtype == DType::f32 ? "exact: bf16 would not be faster"
                                      : "exact: auto rounds sums of f32 only";
}

int run_questions(const PlanFlags& flags) {
  std::vector<Question> questions = questions_of(flags);
  check_writable("--json", flags.json);
  check_links(flags);
  basis_of(flags, {});  // Checks the flags before anything is measured.
  std::optional<schedule::Facts> measured;
  if (flags.measure) {
    measured = plan::measure(std::clamp(ranks_per_node(flags), 2, kMostMeasuredRanks));
    if (!measured) return kFailed;
  }
  const Basis basis = basis_of(flags, measured);
  const schedule::Facts& facts = basis.facts;
  const int nodes = node_count(facts, flags.ranks);
  const std::string compression = nodes == 1 ? "none" : describe(questions.front().compression);
  for (Question& question : questions) {
    question.nodes = nodes;
    if (!plan::compresses(question, facts)) question.compression = {};
  }
  fmt::print("# mccl {}: {} rank{} on {} node{}, {}, algorithm {}, compression {}\n{}",
             MCCL_VERSION, flags.ranks, flags.ranks == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
             flags.calls.dtype, flags.algorithm, compression, facts_text(facts, basis.origin));
  if (!flags.links.empty()) fmt::print("{}", links_text(basis.cabling, facts.cables.get()));
  auto rows = nlohmann::ordered_json::array();
  std::optional<bench::Routine> under;
  for (const Question& question : questions) {
    if (under != question.routine) fmt::print("{}", plan::heading(question.routine));
    under = question.routine;
    const Answer found = answer(question, facts);
    const auto others =
        flags.compare ? alternatives(question, facts) : std::vector<schedule::Choice>();
    fmt::print("{}{}", row_text(found), alternatives_text(found, others));
    if (compression == "auto") fmt::print("  {}\n", auto_text(question));
    if (facts.forced && found.choice.algorithm != *facts.forced)
      fmt::print("#   {} does not support this call: the row shows the algorithm used instead\n",
                 schedule::name_of(*facts.forced));
    rows.push_back(row_json(found, others));
  }
  if (!flags.json.empty()) write_file(flags.json, to_json(facts, flags.ranks, std::move(rows)));
  return kGood;
}

int run_check(const CLI::App& app, const PlanFlags& flags) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && name != "--check" && name != "--within" && name != "--json" &&
        name != "--fact") {
      throw InvalidArgument(
          fmt::format("--check takes the calls and the facts from its file; leave out {}", name));
    }
  }
  check_writable("--json", flags.json);
  MeasuredRun run =
      parse_run(read_named("--check", flags.check, "a result of mccl bench"), flags.check);
  for (const std::string& fact : flags.facts) set_fact(run.facts, fact);
  const std::vector<Comparison> comparisons = compare(run);
  fmt::print("{}{}", facts_text(run.facts, "measured by that run"),
             comparison_text(run, comparisons, flags.within.value_or(kTolerance)));
  if (!flags.json.empty()) write_file(flags.json, comparison_json(run, comparisons));
  return flags.within && count_outside(comparisons, *flags.within) > 0 ? kFailed : kGood;
}

void add_what(CLI::App& app, PlanFlags& flags) {
  bench::add_flags(app, flags.calls, "barrier, or all", kMostRanks);
  add_value(app, "-n,--ranks N", flags.ranks, "Processes; default 2",
            integer_between(1, kMostRanks));
  CLI::Option* nodes =
      add_value(app, "--nodes K", flags.nodes, "Machines, filled as evenly as possible; default 1",
                integer_between(1, kMostRanks));
  add_value(app, "--ranks-per-node M", flags.ranks_per_node,
            "Ranks on each machine, instead of --nodes", integer_between(1, kMostRanks))
      ->excludes(nodes);
  app.add_flag("--in-place", flags.in_place, "Input and output are the same memory");
  add_value(app, "--algorithm NAME", flags.algorithm,
            "Algorithm for all calls that it supports; default auto: the cheapest");
  add_value(app, "--compression CODEC", flags.compression,
            "Codec of large sums between nodes, as in mccl bench, or auto: bf16 if\nthat is "
            "faster; default none");
}

void add_facts(CLI::App& app, PlanFlags& flags) {
  add_value(app, "--link-latency TIME", flags.link_latency,
            "Latency of an empty message between machines, such as 15us");
  add_value(app, "--link-rate RATE", flags.link_rate,
            "Rate between machines in one direction, such as 10Gbit or 1.25GB/s");
  add_value(app, "--links FILE", flags.links,
            "JSON file of the cables, if some pairs of ranks have none: a list\nof "
            "{\"between\": [0, 1], \"rate\": \"10Gbit\", \"latency\": \"20us\"}; every rank "
            "is\na separate machine");
  add_value(app, "--window BYTES", flags.window,
            "Bytes that a rank can publish in shared memory at a time;\ndefault 1M; 0: calls use "
            "only links");
  add_value(app, "--cores N", flags.cores, "Cores of each machine; default: those of this machine",
            integer_between(1, 1 << 16));
  app.add_flag("--measure", flags.measure,
               "Measure this machine as a job does, with as many ranks as a node\nhas");
  add_value(app, "--fact NAME=VALUE", flags.facts,
            "Set one of the facts that are printed above the table; may be repeated");
}

void add_output(CLI::App& app, PlanFlags& flags) {
  app.add_flag("--compare", flags.compare,
               "Show every algorithm that supports the call, cheapest first");
  CLI::Option* check = add_value(app, "--check FILE", flags.check,
                                 "Compare predictions with the times in a JSON file of mccl bench");
  add_value(app, "--within PERCENT", flags.within,
            "With --check: fail if a prediction deviates by more than this\nmany per cent",
            number_between(0.0, 1e6))
      ->needs(check);
  add_value(app, "--json FILE", flags.json, "Write the plan to FILE as one JSON object");
}

}  // namespace

Command add(CLI::App& program) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* app = program.add_subcommand("plan", kSummary);
  app->footer(kFooter);
  add_what(*app, *flags);
  add_facts(*app, *flags);
  add_output(*app, *flags);
  return {app, [app, flags] {
            return flags->check.empty() && app->get_option("--check")->count() == 0
                       ? run_questions(*flags)
                       : run_check(*app, *flags);
          }};
}

}  // namespace mccl::cli::plan
