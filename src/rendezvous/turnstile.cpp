#include "rendezvous/turnstile.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/open_files.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kPauseOutOfRoom = 100ms;
constexpr Clock::duration kSilence = 60s;
/// A pause lasts until several connections may be accepted, so that one wake-up serves them all.
constexpr double kBatchSeconds = 0.01;

std::string what_to_do(int error) {
  if (error == ENFILE)
    return "the limit of the whole system is reached; raise it (sysctl fs.file-max)";
  if (error != EMFILE) return "end other programs, or give this one more memory";
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "raise the limit of open files (ulimit -n)";
  return fmt::format(
      "this process may have {} files and connections open (ulimit -n); raise the limit, up to {} "
      "here, or close some",
      limit.rlim_cur,
      limit.rlim_max == RLIM_INFINITY ? "any number" : fmt::format("{}", limit.rlim_max));
}

}  // namespace

Turnstile::Turnstile(Log log, std::function<void()> on_refused)
    : log_(std::move(log)), on_refused_(std::move(on_refused)) {}

void Turnstile::limit(AdmissionRate rate, Clock::time_point now) {
  rate_ = rate;
  tokens_ = rate.at_once;
  filled_at_ = now;
}

bool Turnstile::open(Clock::time_point now) {
  opens_at_ = Clock::time_point::max();
  if (now < pause_ends_) {
    opens_at_ = pause_ends_;
    return false;
  }
  if (!rate_) return true;
  refill(now);
  if (tokens_ >= 1) return true;
  const double batch = std::clamp(kBatchSeconds * rate_->per_second, 1.0, rate_->at_once);
  const std::chrono::duration<double> wait((batch - tokens_) / rate_->per_second);
  pause_ends_ = opens_at_ = now + std::chrono::ceil<Clock::duration>(wait);
  return false;
}

void Turnstile::refill(Clock::time_point now) {
  const double passed = std::chrono::duration<double>(now - filled_at_).count();
  tokens_ = std::min(rate_->at_once, tokens_ + passed * rate_->per_second);
  filled_at_ = now;
}

void Turnstile::admitted() {
  if (rate_) tokens_ -= 1;
}

void Turnstile::accept_gave(int error, Clock::time_point now) {
  const int before = std::exchange(out_of_room_, error);
  if (error == 0) return;
  pause_ends_ = opens_at_ = now + kPauseOutOfRoom;
  if (before != 0) return;
  out_of_room_since_ = now;
  log_.warn("cannot accept connections for now, and keeps trying: {}; {}",
            transport::tcp::describe_errno(error), what_to_do(error));
}

int Turnstile::lacks_files(Clock::time_point now) const {
  const bool for_long = now - out_of_room_since_ >= kPatienceWithoutFiles;
  return mccl::lacks_files(out_of_room_) && for_long ? out_of_room_ : 0;
}

LogLevel level_of(Refusal refusal) {
  const bool was_meant_for_us = refusal == Refusal::proof || refusal == Refusal::version;
  return was_meant_for_us ? LogLevel::warn : LogLevel::info;
}

void Turnstile::turned_away(LogLevel level, const std::string& from, const std::string& why,
                            Clock::time_point now) {
  if (on_refused_) on_refused_();
  if (!log_.enabled(level)) return;
  Lines& lines = level == LogLevel::warn ? loud_lines_ : quiet_lines_;
  if (lines.last && now - *lines.last < kSilence) {
    ++lines.unsaid;
    return;
  }
  std::string line = fmt::format("refused a connection from {}: {}", from, why);
  if (lines.unsaid > 0) {
    line += fmt::format(" (and {} more since the last such line)", lines.unsaid);
  }
  log_.write(level, line);
  lines = {now, 0};
}

}  // namespace mccl::rendezvous
