#include "transport/tcp/cipher_threads.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"
#include "mccl/error.h"

namespace mccl::transport::tcp {
namespace {

/// Time for which a thread looks for the next batch before it sleeps. The batches of one message
/// follow each other within about 50 us; waking a thread takes as long.
constexpr Clock::duration kLookFor = std::chrono::microseconds(100);
/// Number of looks between two readings of the clock.
constexpr int kLooks = 64;

}  // namespace

std::size_t CipherThreads::count_for(double processes_per_core) {
  const double cores = 1 / std::max(processes_per_core, 1.0 / (kMostThreads + 1));
  return static_cast<std::size_t>(cores) - (cores >= 1 ? 1 : 0);
}

CipherThreads::~CipherThreads() {
  if (!running_) return;
  if (process_ != ::getpid()) {
    // The child's own threads may have got the identities of these, so they must not be touched.
    (void)running_.release();
    return;
  }
  is_ending_ = true;
  ++generation_;
  generation_.notify_all();
  for (std::thread& thread : *running_) thread.join();
}

void CipherThreads::start() {
  is_started_ = true;
  process_ = ::getpid();
  try {
    running_ = std::make_unique<std::vector<std::thread>>();
    running_->reserve(count_);
    for (std::size_t lane = 1; lane <= count_; ++lane)
      running_->push_back(start_thread("mccl-cipher", [this, lane] { run(lane); }));
  } catch (const std::exception&) {
    // The driving thread and the threads that have started process all records.
  }
}

void CipherThreads::run(std::size_t lane) {
  std::uint32_t seen = 0;
  while (!is_ending_) {
    const Clock::time_point end = Clock::now() + kLookFor;
    do {
      for (int look = 0; look < kLooks && generation_ == seen; ++look) pause_core();
    } while (generation_ == seen && Clock::now() < end);
    generation_.wait(seen);
    seen = generation_;
    ++inside_;
    if (Batch* const batch = batch_; batch != nullptr) {
      while (batch->process_one(lane)) {
      }
    }
    --inside_;
  }
}

CipherThreads::Batch::Batch(CipherThreads* threads, std::size_t count, Job job)
    : threads_(count > 1 ? threads : nullptr), count_(count), job_(std::move(job)) {
  if (threads_ == nullptr) return;
  if (!threads_->is_started_) threads_->start();
  threads_->batch_ = this;
  ++threads_->generation_;
  threads_->generation_.notify_all();
}

CipherThreads::Batch::~Batch() {
  while (processed() < count_) help();
  if (threads_ == nullptr) return;
  threads_->batch_ = nullptr;
  while (threads_->inside_ != 0) std::this_thread::yield();
}

std::size_t CipherThreads::Batch::processed() {
  while (processed_ < count_ && is_done_[processed_]) ++processed_;
  return processed_;
}

void CipherThreads::Batch::help() {
  if (!process_one(0)) std::this_thread::yield();
}

bool CipherThreads::Batch::process_one(std::size_t lane) {
  if (next_ >= count_) return false;
  const std::size_t index = next_++;
  if (index >= count_) return false;
  job_(lane, index);
  is_done_[index] = true;
  return true;
}

}  // namespace mccl::transport::tcp
