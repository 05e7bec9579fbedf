#include "mccl/context.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "c_api/handles.h"
#include "c_api/options.h"
#include "mccl/c.h"
#include "mccl/error.h"
#include "mccl/metrics.h"

using namespace mccl::c_api;

namespace {

mccl::Context& context_of(const char* call, const mccl_context* context) {
  return *checked(call, "context", context).value;
}

mccl::Config settings_of(const char* call, const mccl_config* config) {
  if (!config) return mccl::Config::from_environment();
  return checked(call, "config", config).value;
}

/// Default time limit of a group's calls, used if the program sets none for the group.
std::chrono::milliseconds timeout_of(const mccl::Context& context) {
  return mccl::milliseconds_of(context.config().timeout);
}

/// Copies `members`. First throws InvalidArgument if `count` exceeds the number of ranks, because
/// with a wrong count the copy could read past the caller's array.
std::vector<int> members_of(const char* call, const mccl::Context& context, const int32_t* members,
                            std::size_t count) {
  if (count <= static_cast<std::size_t>(context.size())) return {members, members + count};
  throw mccl::InvalidArgument(std::string(call) + ": " + std::to_string(count) +
                              " members for a job of " + std::to_string(context.size()) +
                              " ranks; list each rank once");
}

}  // namespace

mccl_status mccl_context_create(const mccl_context_options* options,
                                mccl_context** context) noexcept {
  constexpr const char* kCall = "mccl_context_create";
  return guarded([&] {
    clear(kCall, "context", context);
    const mccl_context_options given = read_options(kCall, options);
    mccl::ContextOptions wanted;
    wanted.rank = given.rank;
    wanted.size = given.size;
    if (given.store) wanted.store = checked(kCall, "options.store", given.store).value;
    wanted.config = settings_of(kCall, given.config);
    hand_out(context, mccl::Context::create(wanted));
  });
}

mccl_status mccl_context_from_environment(const mccl_config* config,
                                          mccl_context** context) noexcept {
  constexpr const char* kCall = "mccl_context_from_environment";
  return guarded([&] {
    clear(kCall, "context", context);
    hand_out(context, mccl::Context::from_environment(settings_of(kCall, config)));
  });
}

mccl_status mccl_context_reconfigure(mccl_context* context, int64_t timeout_ms,
                                     mccl_context** renewed) noexcept {
  constexpr const char* kCall = "mccl_context_reconfigure";
  return guarded([&] {
    clear(kCall, "renewed", renewed);
    const std::chrono::milliseconds timeout(std::max<std::int64_t>(0, timeout_ms));
    hand_out(renewed, context_of(kCall, context).reconfigure(timeout));
  });
}

mccl_status mccl_context_shutdown(mccl_context* context) noexcept {
  return guarded([&] { context_of("mccl_context_shutdown", context).shutdown(); });
}

void mccl_context_destroy(mccl_context* context) noexcept {
  destroy("mccl_context_destroy", context);
}

mccl_status mccl_context_allocate(mccl_context* context, size_t bytes,
                                  mccl_memory** memory) noexcept {
  constexpr const char* kCall = "mccl_context_allocate";
  return guarded([&] {
    clear(kCall, "memory", memory);
    hand_out(memory, context_of(kCall, context).allocate(bytes));
  });
}

void* mccl_memory_data(const mccl_memory* memory) noexcept {
  return value_or<void*>(nullptr,
                         [&] { return checked("mccl_memory_data", "memory", memory).value.get(); });
}

void mccl_memory_destroy(mccl_memory* memory) noexcept { destroy("mccl_memory_destroy", memory); }

int32_t mccl_context_rank(const mccl_context* context) noexcept {
  return value_or(-1, [&] { return context_of("mccl_context_rank", context).rank(); });
}

int32_t mccl_context_size(const mccl_context* context) noexcept {
  return value_or(-1, [&] { return context_of("mccl_context_size", context).size(); });
}

mccl_status mccl_context_setting(const mccl_context* context, const char* name, char* text,
                                 size_t capacity, size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_setting";
  return guarded([&] {
    const mccl::Config& config = context_of(kCall, context).config();
    copy_text(kCall, config.get(text_of(kCall, "name", name)), text, capacity, length);
  });
}

mccl_status mccl_context_world(mccl_context* context, mccl_group** group) noexcept {
  constexpr const char* kCall = "mccl_context_world";
  return guarded([&] {
    clear(kCall, "group", group);
    hand_out(group, context_of(kCall, context).world());
  });
}

mccl_status mccl_context_group(mccl_context* context, const char* name, const int32_t* members,
                               size_t count, int64_t timeout_ms, mccl_group** group) noexcept {
  constexpr const char* kCall = "mccl_context_group";
  return guarded([&] {
    clear(kCall, "group", group);
    mccl::Context& owner = context_of(kCall, context);
    require(kCall, "name", name);
    require(kCall, "members", members);
    hand_out(group, owner.group(name, members_of(kCall, owner, members, count),
                                limit_of(timeout_ms, timeout_of(owner))));
  });
}

mccl_status mccl_context_group_with(mccl_context* context, const mccl_group_options* options,
                                    mccl_group** group) noexcept {
  constexpr const char* kCall = "mccl_context_group_with";
  return guarded([&] {
    clear(kCall, "group", group);
    mccl::Context& owner = context_of(kCall, context);
    const mccl_group_options wanted = read_options(kCall, options);
    hand_out(group, owner.group(wanted.name, members_of(kCall, owner, wanted.members, wanted.count),
                                limit_of(wanted.timeout_ms, timeout_of(owner)),
                                compression_of(kCall, wanted.compression, wanted.topk_ratio)));
  });
}

mccl_status mccl_before_fork(mccl_context* context) noexcept {
  return guarded([&] { context_of("mccl_before_fork", context).before_fork(); });
}

mccl_status mccl_after_fork_in_parent(mccl_context* context) noexcept {
  return guarded([&] { context_of("mccl_after_fork_in_parent", context).after_fork_in_parent(); });
}

mccl_status mccl_after_fork_in_child(mccl_context* context) noexcept {
  return guarded([&] {
    mccl_context& handle = checked("mccl_after_fork_in_child", "context", context);
    // This reference is never released, so that the context is never destroyed: its thread and its
    // locks belong to the parent process.
    static_cast<void>(std::make_unique<std::shared_ptr<mccl::Context>>(handle.value).release());
    handle.value->abandon_after_fork();
  });
}

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const mccl::MetricsSummary& summary) {
  Json fields = Json::object();
  for_each_field(summary, [&](const char* name, auto value) { fields[name] = value; });
  return fields;
}

Json json_of(const mccl::Costs& costs) {
  Json numbers = Json::object();
  for (const auto& [name, value] : costs.numbers) numbers[name] = value;
  return {{"numbers", std::move(numbers)}, {"nodes", costs.nodes}};
}

}  // namespace

mccl_status mccl_context_metrics_json(const mccl_context* context, char* text, size_t capacity,
                                      size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_metrics_json";
  return guarded([&] {
    const auto metrics = checked(kCall, "context", context).value->metrics();
    copy_text(kCall, json_of(metrics->summary()).dump(), text, capacity, length);
  });
}

mccl_status mccl_context_flight_record_json(const mccl_context* context, char* text,
                                            size_t capacity, size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_flight_record_json";
  return guarded([&] {
    copy_text(kCall, context_of(kCall, context).flight_record(), text, capacity, length);
  });
}

mccl_status mccl_context_reset_metrics(mccl_context* context) noexcept {
  return guarded(
      [&] { checked("mccl_context_reset_metrics", "context", context).value->metrics()->reset(); });
}

mccl_status mccl_context_costs_json(const mccl_context* context, char* text, size_t capacity,
                                    size_t* length) noexcept {
  constexpr const char* kCall = "mccl_context_costs_json";
  return guarded([&] {
    const mccl::Costs costs = checked(kCall, "context", context).value->costs();
    copy_text(kCall, json_of(costs).dump(), text, capacity, length);
  });
}
