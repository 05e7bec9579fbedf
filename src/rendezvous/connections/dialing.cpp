#include "rendezvous/connections/dialing.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "base/open_files.h"
#include "mccl/error.h"

namespace mccl::rendezvous {

constexpr std::string_view kNoAnswer = "no answer";

Dial::Dial(DialRequest request)
    : request_(std::move(request)),
      begun_(Clock::now()),
      next_start_(std::max(begun_, request_.not_before)),
      back_off_(kFirstBackOff) {}

bool Dial::advance(Clock::time_point now) {
  start_attempts(now);
  for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
    switch (advance(*attempt, now)) {
      case Progress::waiting:
        ++attempt;
        break;
      case Progress::failed:
        attempt = attempts_.erase(attempt);
        next_start_ = now;
        proven_ = false;
        break;
      case Progress::done:
        winner_ = attempt->candidate;
        link_number_ = attempt->conversation->handshake().link_number();
        socket_ = attempt->conversation->take_socket();
        attempts_.clear();
        return true;
      case Progress::refused:
        was_refused_ = true;
        failed(*attempt, attempt->conversation->trouble());
        reason_ = fmt::format("rank {} at {}: {}", request_.peer, candidate_of(*attempt).to.text(),
                              candidate_of(*attempt).outcome);
        attempts_.clear();
        return true;
    }
  }
  const bool gone =
      request_.refused_for > Clock::duration::zero() &&
      ((request_.one_refusal_suffices && is_refused_) ||
       (attempts_.empty() && refused_since_ && now - *refused_since_ >= request_.refused_for));
  const bool has_tried_once = request_.once && attempts_.empty() && !untried();
  const bool has_waited_for_files =
      lacks_files_ != 0 && attempts_.empty() && now - lacks_files_since_ >= kPatienceWithoutFiles;
  if (now >= request_.deadline || gone || has_tried_once || has_waited_for_files) {
    fail(now);
    return true;
  }
  if (untried()) {
    start_attempts(now);
  } else if (!request_.once && !proven_ && attempts_.size() < request_.candidates.size()) {
    begin_round(now);
  }
  return false;
}

Socket Dial::run() {
  while (!advance(Clock::now())) {
    std::vector<pollfd> watched;
    watch(watched);
    (void)::poll(watched.data(), watched.size(), milliseconds_until(next_deadline()));
  }
  return take_socket();
}

/// Starts another round over the candidates, once all of them have been tried in the present round.
void Dial::begin_round(Clock::time_point now) {
  if (!attempts_.empty() || !all_refused_) {
    refused_since_.reset();
  } else if (!refused_since_) {
    refused_since_ = now;
  }
  all_refused_ = true;
  next_candidate_ = 0;
  next_start_ = now + back_off_;
  back_off_ = std::min(2 * back_off_, request_.longest_back_off);
}

void Dial::start_attempts(Clock::time_point now) {
  while (!proven_ && untried() && now >= next_start_ && now < request_.deadline) {
    const std::size_t candidate = next_candidate_++;
    if (std::ranges::find(attempts_, candidate, &Attempt::candidate) != attempts_.end()) continue;
    start(candidate, now);
    if (!attempts_.empty()) next_start_ = now + request_.stagger;
  }
}

void Dial::start(std::size_t index, Clock::time_point now) {
  Candidate& candidate = request_.candidates[index];
  Attempt attempt;
  try {
    attempt.candidate = index;
    attempt.begun = now;
    attempt.deadline = std::min(now + request_.attempt_limit, request_.deadline);
    attempt.connecting = Socket::stream(candidate.to.family());
    lacks_files_ = 0;
    set_buffer_bytes(attempt.connecting, request_.buffer_bytes);
    tune_stream(attempt.connecting);
    const auto* source = candidate.from ? &*candidate.from : nullptr;
    const int error = start_connect(attempt.connecting, candidate.to, source);
    if (error != 0 && error != EINPROGRESS) {
      could_not_connect(error, now);
      candidate.outcome = describe_errno(error);
      return;
    }
    if (candidate.outcome.empty()) candidate.outcome = kNoAnswer;
    attempts_.push_back(std::move(attempt));
  } catch (const transport::tcp::SocketError& error) {
    all_refused_ = false;
    candidate.outcome = error.what();
    if (!lacks_files(error.code)) return;
    if (std::exchange(lacks_files_, error.code) == 0) lacks_files_since_ = now;
  }
}

Dial::Progress Dial::advance(Attempt& attempt, Clock::time_point now) {
  if (!attempt.conversation) {
    const Progress connected = finish_connecting(attempt);
    if (connected == Progress::failed) return connected;
  }
  if (attempt.conversation) {
    Conversation& conversation = *attempt.conversation;
    const Conversation::State state = conversation.advance();
    const Handshake& handshake = conversation.handshake();
    switch (state) {
      case Conversation::State::done:
        return attempt.with_first_hop ? talk_to_peer(attempt) : Progress::done;
      case Conversation::State::refused:
      case Conversation::State::broken:
        if (handshake.proven() && handshake.refusal() == Refusal::settings)
          return Progress::refused;
        return failed(attempt, request_.through && !attempt.with_first_hop
                                   ? fmt::format("through rank {}: {}", request_.through->rank,
                                                 conversation.trouble())
                                   : conversation.trouble());
      case Conversation::State::waiting:
        if (!handshake.proven() || attempt.with_first_hop || std::exchange(proven_, true)) break;
        attempts_.remove_if([&](const Attempt& other) { return &other != &attempt; });
        break;
    }
  }
  if (now < attempt.deadline) return Progress::waiting;
  // Keep the outcome of an earlier, complete attempt. It is more informative than the outcome of an
  // attempt that the deadline cuts short.
  if (!attempt.conversation && attempt.deadline == request_.deadline &&
      candidate_of(attempt).outcome != kNoAnswer)
    return Progress::failed;
  return failed(attempt, attempt.conversation ? "connected, but the handshake got no answer in time"
                                              : "no answer to the attempt to connect");
}

Dial::Progress Dial::failed(const Attempt& attempt, std::string outcome) {
  candidate_of(attempt).outcome = std::move(outcome);
  return Progress::failed;
}

Dial::Progress Dial::finish_connecting(Attempt& attempt) {
  if (!is_ready(attempt.connecting, POLLOUT)) return Progress::waiting;
  if (const int error = attempt.connecting.take_error(); error != 0) {
    could_not_connect(error, attempt.begun);
    return failed(attempt, describe_errno(error));
  }
  if (is_self_connected(attempt.connecting))
    return failed(attempt, "nothing listens at this address (the socket connected to itself)");
  if (request_.limits_silence) limit_silence(attempt.connecting);
  try {
    candidate_of(attempt).met = true;
    all_refused_ = false;
    refused_since_.reset();
    first_refusal_.reset();
    attempt.with_first_hop = request_.through.has_value();
    FirstHop hop = request_.through.value_or(FirstHop{request_.self, request_.peer, request_.key});
    hop.self.port = candidate_of(attempt).to.port();
    attempt.conversation.emplace(std::move(attempt.connecting),
                                 Handshake::dialer(std::move(hop.self), hop.rank, hop.key));
    attempt.deadline = request_.deadline;
    if (request_.handshake_limit < Clock::duration::max())
      attempt.deadline = std::min(attempt.deadline, Clock::now() + request_.handshake_limit);
  } catch (const Error& error) {
    return failed(attempt, error.what());
  }
  return Progress::waiting;
}

/// Starts the handshake with the peer. The first hop relays the bytes of this handshake.
Dial::Progress Dial::talk_to_peer(Attempt& attempt) {
  attempt.with_first_hop = false;
  attempt.conversation.emplace(attempt.conversation->take_socket(),
                               Handshake::dialer(request_.self, request_.peer, request_.key));
  return advance(attempt, Clock::now());
}

void Dial::could_not_connect(int error, Clock::time_point begun) {
  all_refused_ &= error == ECONNREFUSED;
  if (error == ECONNREFUSED) {
    if (!first_refusal_) first_refusal_ = begun;
    is_refused_ = begun - *first_refusal_ >= request_.refused_for;
  }
  last_error_ = error;
  last_tried_ = begun;
}

void Dial::fail(Clock::time_point now) {
  attempts_.clear();
  if (lacks_files_ != 0) {
    reason_ = fmt::format("rank {} could not connect to rank {}: {}", request_.self.rank,
                          request_.peer, without_files(request_.self.rank, lacks_files_));
    return;
  }
  const std::string tried = outcomes();
  reason_ = fmt::format(
      "rank {} could not connect to rank {} within {:.1f} s. Tried {}. {}", request_.self.rank,
      request_.peer, seconds_between(begun_, now),
      tried.empty() ? "nothing: that rank published no address that this rank can use" : tried,
      advice());
}

std::string Dial::outcomes() const {
  std::string tried;
  for (const Candidate& candidate : request_.candidates)
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", candidate.text(),
                         candidate.outcome.empty() ? "not tried" : candidate.outcome);
  return tried;
}

std::string Dial::advice() const {
  const bool met = std::ranges::any_of(request_.candidates, &Candidate::met);
  if (met && request_.through) {
    return fmt::format(
        "Rank {0} was to relay the connection to rank {1}, but closed it: check that rank {1}'s "
        "process runs, that no firewall on its host blocks its port, and that every rank has the "
        "same MCCL_JOB_KEY",
        request_.through->rank, request_.peer);
  }
  if (met) {
    return fmt::format(
        "A program accepted a connection at one of these addresses, so no firewall blocks that "
        "address: check that the program is rank {} of this job and not stopped, and that every "
        "rank has the same MCCL_JOB_KEY",
        request_.peer);
  }
  return fmt::format(
      "Check that rank {}'s process runs, that no firewall blocks port {}, and that "
      "MCCL_LISTEN_ADDR or MCCL_IFNAME on rank {} names an address that rank {} can reach",
      request_.peer, request_.candidates.empty() ? 0 : first_choice().to.port(), request_.peer,
      request_.self.rank);
}

void Dial::watch(std::vector<pollfd>& descriptors) const {
  for (const Attempt& attempt : attempts_) {
    descriptors.push_back(attempt.conversation
                              ? attempt.conversation->watched()
                              : pollfd{attempt.connecting.descriptor(), POLLOUT, 0});
  }
}

Clock::time_point Dial::next_deadline() const {
  Clock::time_point next = request_.deadline;
  if (!proven_ && untried()) next = std::min(next, next_start_);
  for (const Attempt& attempt : attempts_) next = std::min(next, attempt.deadline);
  return next;
}

}  // namespace mccl::rendezvous
