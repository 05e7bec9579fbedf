#include "backend/mpi/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// What a member shows the first, and what that answers.
struct Card {
  std::uint64_t id = 0;
  std::uint32_t verdict = 0;  ///< 0: the group is made; otherwise 1 + the Kind of what is wrong.
  std::uint32_t length = 0;
  std::array<char, 4000> text = {};

  void set(std::string_view said) {
    length = static_cast<std::uint32_t>(std::min(said.size(), text.size()));
    std::memcpy(text.data(), said.data(), length);
  }
  std::string said() const { return {text.data(), std::min<std::size_t>(length, text.size())}; }
};
static_assert(std::is_trivially_copyable_v<Card>);

constexpr int kCardBytes = static_cast<int>(sizeof(Card));
/// The first's answer shall come before a member gives up by itself.
constexpr std::chrono::seconds kForTheAnswer{2};

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash ^ (hash >> 32);
}

/// The first line in which two texts differ, of each.
std::pair<std::string, std::string> first_difference(std::string_view a, std::string_view b) {
  while (!a.empty() || !b.empty()) {
    const std::string_view of_a = a.substr(0, a.find('\n'));
    const std::string_view of_b = b.substr(0, b.find('\n'));
    if (of_a != of_b) return {std::string(of_a), std::string(of_b)};
    a.remove_prefix(std::min(a.size(), of_a.size() + 1));
    b.remove_prefix(std::min(b.size(), of_b.size() + 1));
  }
  return {};
}

/// One member's part.
class Meeting {
 public:
  Meeting(Process& process, const Invitation& invitation, std::chrono::milliseconds timeout)
      : process_(process),
        library_(process.library()),
        invitation_(invitation),
        timeout_(timeout),
        limit_(Clock::now() + timeout),
        text_(fmt::format("members {}\n{}", fmt::join(invitation.members, " "),
                          invitation.agreement)) {
    const int half = half_of_tags(library_.largest_tag(process.control()));
    // Two tags, for the way there and back; those below are of notices and of nothing else.
    const auto places = static_cast<std::uint64_t>(half / 2 - 16);
    tag_ = 16 + 2 * static_cast<int>(hash_of(invitation.name) % places);
  }

  /// The group's id.
  std::uint64_t run() { return invitation_.members.front() == process_.rank() ? lead() : follow(); }
  int tag() const { return tag_; }

 private:
  std::uint64_t lead() {
    const std::size_t others = invitation_.members.size() - 1;
    std::vector<Card> cards(others);
    std::vector<Handle> requests(others);
    for (std::size_t i = 0; i < others; ++i) {
      call([&] { requests[i] = receive(cards[i], invitation_.members[i + 1], tag_); });
    }
    std::vector<bool> came(others, false);
    std::string wrong;
    Kind kind = Kind::mismatch;
    await([&] {
      for (std::size_t i = 0; i < others; ++i)
        if (!came[i]) came[i] = library_.test(requests[i], nullptr);
      return std::ranges::all_of(came, std::identity());
    });
    std::vector<int> missing;
    for (std::size_t i = 0; i < others; ++i) {
      if (!came[i]) {
        missing.push_back(invitation_.members[i + 1]);
        call([&] { take_back(requests[i]); });
      } else if (wrong.empty() && cards[i].said() != text_) {
        const auto [here, there] = first_difference(text_, cards[i].said());
        wrong = fmt::format(
            "group '{}': rank {} says \"{}\" where rank {} says \"{}\"; all must say the same",
            invitation_.name, invitation_.members.front(), here, invitation_.members[i + 1], there);
      }
    }
    if (!missing.empty()) {
      kind = Kind::timeout;
      wrong = fmt::format(
          "group '{}': ranks {} have not come to make it after {:.3g} s; all members make a group, "
          "and groups in the same order (MCCL_CONNECT_TIMEOUT)",
          invitation_.name, fmt::join(missing, ", "),
          std::chrono::duration<double>(timeout_).count());
    }
    Card answer;
    answer.id = (static_cast<std::uint64_t>(process_.rank()) << 40) | process_.next_group_number();
    answer.verdict = wrong.empty() ? 0 : 1 + static_cast<std::uint32_t>(kind);
    answer.set(wrong);
    send_answers(answer, came);
    if (!wrong.empty()) std::rethrow_exception(exception_of(kind, wrong));
    return answer.id;
  }

  void send_answers(const Card& answer, const std::vector<bool>& came) {
    std::vector<Handle> sent;
    for (std::size_t i = 0; i < came.size(); ++i) {
      if (!came[i]) continue;
      call([&] { sent.push_back(send(answer, invitation_.members[i + 1], tag_ + 1)); });
    }
    limit_ = std::max(limit_, Clock::now() + kForTheAnswer);
    std::vector<bool> done(sent.size(), false);
    await([&] {
      for (std::size_t i = 0; i < sent.size(); ++i)
        if (!done[i]) done[i] = library_.test(sent[i], nullptr);
      return std::ranges::all_of(done, std::identity());
    });
  }

  std::uint64_t follow() {
    const int first = invitation_.members.front();
    Card own;
    own.set(text_);
    Card answer;
    Handle sent = 0;
    Handle answered = 0;
    call([&] {
      answered = receive(answer, first, tag_ + 1);
      sent = send(own, first, tag_);
    });
    limit_ += kForTheAnswer;
    bool is_sent = false;
    bool is_answered = false;
    await([&] {
      is_sent = is_sent || library_.test(sent, nullptr);
      is_answered = is_answered || library_.test(answered, nullptr);
      return is_sent && is_answered;
    });
    if (!is_answered) {
      call([&] { take_back(answered); });
      throw TimeoutError(fmt::format(
          "group '{}': rank {} has not come to make it after {:.3g} s; all members make a group, "
          "and groups in the same order (MCCL_CONNECT_TIMEOUT)",
          invitation_.name, first, std::chrono::duration<double>(timeout_).count()));
    }
    if (answer.verdict != 0) {
      std::rethrow_exception(exception_of(static_cast<Kind>(answer.verdict - 1), answer.said()));
    }
    return answer.id;
  }

  Handle receive(Card& card, int peer, int tag) {
    return library_.irecv(&card, kCardBytes, library_.constants().byte, peer, tag,
                          process_.control());
  }
  Handle send(const Card& card, int peer, int tag) {
    return library_.isend(&card, kCardBytes, library_.constants().byte, peer, tag,
                          process_.control());
  }
  void take_back(Handle request) {
    library_.cancel(request);
    while (!library_.test(request, nullptr)) {
    }
  }

  template <typename Body>
  void call(const Body& body) {
    process_.engine()->run(body);
  }

  /// Until `done` or the limit has passed.
  template <typename Done>
  void await(const Done& done) {
    bool over = false;
    for (int look = 0; !over && Clock::now() < limit_; ++look) {
      call([&] { over = done(); });
      if (over) return;
      if (look < 1000) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
  }

  Process& process_;
  Library& library_;
  const Invitation& invitation_;
  const std::chrono::milliseconds timeout_;
  Clock::time_point limit_;
  const std::string text_;
  int tag_ = 0;
};

}  // namespace

std::shared_ptr<GroupState> meet(Process& process, const Invitation& invitation,
                                 std::chrono::milliseconds timeout) {
  const Engine::Expecting expecting(*process.engine());
  Meeting meeting(process, invitation, timeout);
  const std::uint64_t id = meeting.run();
  auto group = std::make_shared<GroupState>(id, invitation.name, invitation.members);
  Library& library = process.library();
  const auto make = [&] {
    Place& place = group->place;
    place.library = &library;
    place.operations = &process.operations();
    place.comm = library.create_group(process.control(), invitation.members.data(),
                                      static_cast<int>(invitation.members.size()), meeting.tag());
    library.return_errors(place.comm);
    place.rank = library.rank(place.comm);
    place.size = library.size(place.comm);
    place.largest_tag = library.largest_tag(place.comm);
  };
  // Others of this process go on meanwhile where MPI allows it.
  if (process.level() == ThreadLevel::multiple) {
    make();
  } else {
    process.engine()->run(make);
  }
  group->departures.resize(invitation.members.size());
  process.engine()->run([&] { process.engine()->add(group); });
  return group;
}

}  // namespace mccl::mpi
