#include "backend/mpi/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "mccl/error.h"

namespace mccl::mpi {
namespace {

/// What a member shows the first, and what that answers.
struct Card {
  static constexpr std::uint32_t kMade = 0;
  static constexpr std::uint32_t kGone = 1;
  static constexpr std::uint32_t kWrong = 2;  ///< And the Kind of what is wrong.

  std::uint64_t id = 0;  ///< Of the group in an answer, else of the text.
  /// The member's own number; the answer has it too, since one to an earlier attempt may be there.
  std::uint64_t attempt = 0;
  std::uint32_t verdict = kMade;
  std::uint32_t length = 0;
  std::array<char, 3960> text = {};

  void set(std::string_view said) {
    length = static_cast<std::uint32_t>(std::min(said.size(), text.size()));
    std::memcpy(text.data(), said.data(), length);
  }
  std::string said() const { return {text.data(), std::min<std::size_t>(length, text.size())}; }
};
static_assert(std::is_trivially_copyable_v<Card>);

/// What the first knows of another member.
struct Guest {
  Card heard;  ///< MPI writes here.
  Handle request = 0;
  Card shown;
  bool is_here = false;
  Card answer;
  bool is_answered = true;
};

/// What a member has of its own.
struct Papers {
  Card shown;
  Card gone;
  Card answer;
};

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

/// One member's part. What MPI may read or write outlives a part that fails.
class Meeting {
 public:
  Meeting(Process& process, const Invitation& invitation, std::chrono::milliseconds timeout)
      : process_(process),
        library_(process.library()),
        invitation_(invitation),
        timeout_(timeout),
        limit_(Clock::now() + timeout),
        text_(fmt::format("{}\nmembers {}", invitation.agreement,
                          fmt::join(invitation.members, " "))) {
    const int half = half_of_tags(process.largest_tag());
    // Two tags, for the way there and back; those below are of notices and of nothing else.
    const auto places = static_cast<std::uint64_t>(half / 2 - 16);
    tag_ = 16 + 2 * static_cast<int>(hash_of(invitation.name) % places);
  }

  /// The group's id.
  std::uint64_t run() {
    if (invitation_.members.front() != process_.rank()) {
      return kept_where_it_fails<Papers>([this](Papers& papers) { return follow(papers); });
    }
    using Guests = std::vector<Guest>;
    return kept_where_it_fails<Guests>([this](Guests& guests) { return lead(guests); });
  }
  int tag() const { return tag_; }

 private:
  template <typename Memory, typename Part>
  std::uint64_t kept_where_it_fails(const Part& part) {
    auto memory = std::make_unique<Memory>();
    try {
      return part(*memory);
    } catch (...) {
      static_cast<void>(memory.release());
      throw;
    }
  }

  std::uint64_t lead(std::vector<Guest>& guests) {
    guests.resize(invitation_.members.size() - 1);
    for (std::size_t i = 0; i < guests.size(); ++i) receive_from(guests, i);
    await([&] {
      for (std::size_t i = 0; i < guests.size(); ++i) look_at(guests, i);
      return std::ranges::all_of(guests, &Guest::is_here);
    });
    for (Guest& guest : guests) {
      call([&] {
        if (!take_back(guest.request)) take_in(guest);
      });
    }
    const auto [kind, wrong] = verdict_on(guests);
    const std::uint64_t id =
        (static_cast<std::uint64_t>(process_.rank()) << 40) | process_.next_number();
    for (Guest& guest : guests) {
      guest.answer.id = id;
      guest.answer.attempt = guest.shown.attempt;
      guest.answer.verdict =
          wrong.empty() ? Card::kMade : Card::kWrong + static_cast<std::uint32_t>(kind);
      guest.answer.set(wrong);
    }
    send_answers(guests);
    if (!wrong.empty()) std::rethrow_exception(exception_of(kind, wrong));
    return id;
  }

  void receive_from(std::vector<Guest>& guests, std::size_t i) {
    call([&] { guests[i].request = receive(guests[i].heard, invitation_.members[i + 1], tag_); });
  }

  /// A member that gives up says so; it may come again.
  static void take_in(Guest& guest) {
    guest.shown = guest.heard;
    guest.is_here = guest.shown.verdict != Card::kGone;
  }

  void look_at(std::vector<Guest>& guests, std::size_t i) {
    Guest& guest = guests[i];
    while (library_.test(guest.request, nullptr)) {
      take_in(guest);
      guest.request = receive(guest.heard, invitation_.members[i + 1], tag_);
    }
  }

  /// What is wrong; empty where all is well.
  std::pair<Kind, std::string> verdict_on(const std::vector<Guest>& guests) const {
    std::vector<int> missing;
    for (std::size_t i = 0; i < guests.size(); ++i) {
      if (!guests[i].is_here) missing.push_back(invitation_.members[i + 1]);
    }
    if (!missing.empty()) {
      return {Kind::timeout,
              fmt::format("group '{}': ranks {} have not come to make it after {:.3g} s; all "
                          "members make a group, and groups in the same order "
                          "(MCCL_CONNECT_TIMEOUT)",
                          invitation_.name, fmt::join(missing, ", "),
                          std::chrono::duration<double>(timeout_).count())};
    }
    for (std::size_t i = 0; i < guests.size(); ++i) {
      if (guests[i].shown.id == hash_of(text_)) continue;
      const auto [here, there] = first_difference(text_, guests[i].shown.said());
      return {
          Kind::mismatch,
          fmt::format(
              "group '{}': rank {} says \"{}\" where rank {} says \"{}\"; all must say the same",
              invitation_.name, invitation_.members.front(), here, invitation_.members[i + 1],
              there)};
    }
    return {Kind::error, ""};
  }

  void send_answers(std::vector<Guest>& guests) {
    for (std::size_t i = 0; i < guests.size(); ++i) {
      if (!guests[i].is_here) continue;
      guests[i].is_answered = false;
      call([&] {
        guests[i].request = send(guests[i].answer, invitation_.members[i + 1], tag_ + 1);
      });
    }
    limit_ = std::max(limit_, Clock::now() + kForTheAnswer);
    const bool all = await([&] {
      for (Guest& guest : guests)
        guest.is_answered = guest.is_answered || library_.test(guest.request, nullptr);
      return std::ranges::all_of(guests, &Guest::is_answered);
    });
    if (!all) throw TimeoutError(fmt::format("group '{}': not all members hear", invitation_.name));
  }

  std::uint64_t follow(Papers& papers) {
    const int first = invitation_.members.front();
    papers.shown.id = hash_of(text_);
    papers.shown.attempt = process_.next_number();
    papers.shown.set(text_);
    papers.gone.attempt = papers.shown.attempt;
    papers.gone.verdict = Card::kGone;
    Handle sent = 0;
    Handle answered = 0;
    call([&] {
      answered = receive(papers.answer, first, tag_ + 1);
      sent = send(papers.shown, first, tag_);
    });
    limit_ += kForTheAnswer;
    bool is_sent = false;
    bool is_answered = false;
    await([&] {
      is_sent = is_sent || library_.test(sent, nullptr);
      while (!is_answered && library_.test(answered, nullptr)) {
        is_answered = papers.answer.attempt == papers.shown.attempt;
        if (!is_answered) answered = receive(papers.answer, first, tag_ + 1);
      }
      return is_sent && is_answered;
    });
    if (!is_answered) {
      call([&] {
        send(papers.gone, first, tag_);
        is_answered = !take_back(answered) && papers.answer.attempt == papers.shown.attempt;
      });
    }
    if (!is_answered) {
      throw TimeoutError(fmt::format(
          "group '{}': rank {} has not come to make it after {:.3g} s, or waits for others; all "
          "members make a group, and groups in the same order (MCCL_CONNECT_TIMEOUT)",
          invitation_.name, first, std::chrono::duration<double>(timeout_).count()));
    }
    if (papers.answer.verdict != Card::kMade) {
      std::rethrow_exception(exception_of(static_cast<Kind>(papers.answer.verdict - Card::kWrong),
                                          papers.answer.said()));
    }
    return papers.answer.id;
  }

  Handle receive(Card& card, int peer, int tag) {
    return library_.irecv(&card, kCardBytes, library_.constants().byte, peer, tag,
                          process_.control());
  }
  Handle send(const Card& card, int peer, int tag) {
    return library_.isend(&card, kCardBytes, library_.constants().byte, peer, tag,
                          process_.control());
  }
  /// False where something had come before.
  bool take_back(Handle request) {
    Arrival arrival;
    library_.cancel(request);
    while (!library_.test(request, &arrival)) {
    }
    return arrival.cancelled;
  }

  template <typename Body>
  void call(const Body& body) {
    Engine& engine = *process_.engine();
    engine.run([&] {
      if (engine.is_over()) throw Error(engine.over());
      body();
    });
  }

  /// Until `done` or the limit has passed; whether it is done.
  template <typename Done>
  bool await(const Done& done) {
    bool over = false;
    for (int look = 0; Clock::now() < limit_; ++look) {
      call([&] { over = done(); });
      if (over) return true;
      if (look < 1000) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
    return false;
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
