#include "backend/mpi/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "backend/backend.h"
#include "backend/check.h"
#include "mccl/error.h"

namespace mccl::mpi {

MpiGroup::MpiGroup(std::shared_ptr<Engine> engine, std::shared_ptr<GroupState> state, Make make)
    : engine_(std::move(engine)), state_(std::move(state)), make_(std::move(make)) {}

MpiGroup::~MpiGroup() {
  close_line();
  engine_->close(state_, fmt::format("rank {} has let go of the group '{}'", rank(), name()));
}

std::string MpiGroup::failure() const {
  if (!state_->failed()) engine_->listen();
  return state_->failure();
}

std::chrono::milliseconds MpiGroup::timeout_of(const CallOptions& options) const {
  return options.timeout.value_or(state_->timeout);
}

std::shared_ptr<Call> MpiGroup::call_of(const Request& request, const CallOptions& options) const {
  auto call = std::make_shared<Call>(engine_, state_, request);
  call->timeout = timeout_of(options);
  call->caller_waits = options.caller_waits;
  return call;
}

Work MpiGroup::start(const Request& asked, const CallOptions& options) {
  refuse_codec(options.compression);
  Request request = asked;
  // Counts that happen to be equal are an even call, as they are for whoever gives none.
  if (!request.own_counts && !request.counts.empty() &&
      std::ranges::adjacent_find(request.counts, std::not_equal_to()) == request.counts.end()) {
    request.part = request.counts.front();
    request.counts = {};
  }
  if (!is_collective(request.collective)) {
    tag_of(state_->place, request.collective, request.tag);
  }
  if (coalescing_threads_.load(std::memory_order_relaxed) != 0) {
    const std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found != coalescing_.end()) {
      found->second.push_back(call_of(request, options));
      found->second.back()->held_back = true;
      return Work(found->second.back());
    }
  }
  if (options.caller_waits && is_collective(request.collective)) {
    if (auto ended = engine_->run_at_once(engine_, state_, request, timeout_of(options))) {
      return *std::move(ended);
    }
  }
  const std::shared_ptr<Call> call = call_of(request, options);
  engine_->submit({&call, 1});
  return Work(call);
}

void MpiGroup::begin_batch() {
  const std::lock_guard lock(mutex_);
  if (!coalescing_.try_emplace(std::this_thread::get_id()).second) {
    throw InvalidArgument("begin_coalescing: this thread has begun one already; end it first");
  }
  ++coalescing_threads_;
}

bool MpiGroup::batch_is_open() const {
  const std::lock_guard lock(mutex_);
  return coalescing_.contains(std::this_thread::get_id());
}

Work MpiGroup::end_batch() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto found = coalescing_.find(std::this_thread::get_id());
    if (found == coalescing_.end()) {
      throw InvalidArgument("end_coalescing: this thread has not begun one");
    }
    calls = std::move(found->second);
    coalescing_.erase(found);
    --coalescing_threads_;
  }
  if (calls.empty()) return {};
  engine_->submit(calls);
  return Work::all_of(std::vector<Work>(calls.begin(), calls.end()));
}

std::shared_ptr<Group> MpiGroup::split(int color, int key) {
  int number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = splits_++;
  }
  std::vector<int> chosen = ranks_of_color(*this, color, key);
  if (color < 0) return nullptr;
  for (int& member : chosen) member = state_->members[static_cast<std::size_t>(member)];
  return make_(fmt::format("{}/split {} color {}", name(), number, color), chosen, state_->timeout);
}

}  // namespace mccl::mpi
