// Seeds of the targets that stand for another rank, or for what it has written to the store.
#include "rendezvous/connections/wire.h"
#include "script.h"
#include "seeds.h"

namespace mccl::fuzz {
namespace {

Bytes size(std::size_t bytes) { return raw(static_cast<std::uint16_t>(bytes)); }

Bytes step(RecordStep kind) { return one(static_cast<int>(kind)); }

void write_records(const Corpus& corpus) {
  const auto data = [](std::size_t bytes, int padding = 0) {
    return step(RecordStep::data) + size(bytes) + one(padding);
  };
  const auto other = [](int type, std::string_view content, int padding = 0) {
    return step(RecordStep::other) + one(type) + one(padding) +
           one(static_cast<int>(content.size())) + raw(content);
  };
  const auto update = [](int request) { return step(RecordStep::update) + one(request); };
  const auto alert = [](int description) {
    return step(RecordStep::alert) + one(1) + one(description);
  };
  const auto deliver = [](std::size_t bytes) { return step(RecordStep::deliver) + size(bytes); };
  const auto receive = [](std::size_t bytes) { return step(RecordStep::receive) + size(bytes); };
  const Bytes end = alert(0);
  const Bytes altered = step(RecordStep::altered) + size(100) + size(50) + one(4);
  const Bytes junk = step(RecordStep::raw) + one(4) + raw("GET ");
  const Bytes some = data(100) + data(16384) + data(0) + data(5000) + data(1);
  for (const auto& [name, flags] :
       {std::pair("plain", 0), std::pair("threads", kWithThreads),
        std::pair("single", kSingleRecords), std::pair("threads_single", 5)}) {
    const Bytes first = one(flags);
    const auto add = [&](std::string_view what, const Bytes& script) {
      corpus.add(std::string(name) + "_" + std::string(what), first + script);
    };
    add("data", some + some + end);
    add("pieces", some + deliver(3) + receive(10) + deliver(200) + receive(50) + receive(100) +
                      deliver(60000) + receive(17000) + end);
    add("padded", data(100, 200) + data(16384, 255) + data(0, 9) + data(7) + end);
    add("updates", data(9) + update(0) + data(10) + update(1) + data(11) + update(1) + end);
    add("altered", some + altered + some);
    if (flags > 1) continue;
    add("junk", data(5) + junk + data(5));
    add("cut", some + deliver(120) + receive(8));
    add("failure", data(5) + alert(20) + data(5));
    add("after_the_end", data(5) + end + data(5));
    add("another_type", data(5) + other(20, "12345") + data(5));
    add("no_type", data(5) + other(0, "", 20) + data(5));
    add("an_update_by_hand", data(5) + other(22, std::string_view("\x18\0\0\1\1", 5), 3) + data(5));
    add("a_bad_update", data(5) + other(22, std::string_view("\x18\0\0\1\2", 5)) + data(5));
    add("a_type_in_the_padding", other(0, "abc\x17", 9) + end);
    Bytes empty = data(3);
    for (int i = 0; i < 33; ++i) empty = empty + data(0);
    add("empty_records", empty + data(3));
  }
}

void write_members(const Corpus& corpus) {
  for (const auto& [name, role] :
       {std::pair("member_dials", 0x80), std::pair("member_answers", 0x81)}) {
    const auto add = [&](std::string_view what, const Bytes& script) {
      corpus.add(std::string(name) + "_" + std::string(what), one(role) + script);
    };
    // Length of the settings; number of edits and whether the proof is forged, for each message.
    const Bytes first = one(0) + one(0), sealed = one(0) + one(0);
    const auto edit = [](std::size_t at, int change) {
      return one(1) + size(at) + one(change) + one(0);
    };
    add("honest", first + sealed + sealed);
    add("other_settings", one(14) + raw("chunk_bytes=2\n") + one(0) + sealed + sealed);
    add("no_settings", one(1) + raw("\n") + one(0) + sealed + sealed);
    add("another_rank", first + edit(0, 1) + sealed);
    add("huge_settings", first + edit(role == 0x80 ? 3 : 11, 0x7f) + sealed);
    add("another_size", first + edit(4, 1) + sealed);
    add("refusal", first + sealed + edit(0, 1));
    add("a_forged_proof", first + one(0) + one(9) + sealed);
    add("a_forged_seal", first + sealed + one(0) + one(9));
    add("another_job", one(0) + one(2) + size(17) + one(4) + size(25) + one(1) + sealed + sealed);
  }
}

void write_repairs(const Corpus& corpus) {
  const auto number = [](std::uint64_t value) {
    Bytes bytes;
    rendezvous::append(bytes, value);
    return bytes;
  };
  constexpr std::uint64_t kReady = 0x5245'4144'594c'494e;
  const auto begin = [](int flags, int piece) {
    return one(flags) + size(1000) + one(50) + one(piece - 1);
  };
  corpus.add("dialer", begin(1, 8) + number(400));
  corpus.add("dialer_all", begin(1, 3) + number(1000));
  corpus.add("dialer_none", begin(5, 8) + number(0));
  corpus.add("dialer_more_than_written", begin(1, 8) + number(1001));
  corpus.add("dialer_no_such_link", begin(1, 8) + number(UINT64_MAX));
  corpus.add("acceptor", begin(0, 8) + number(kReady) + number(999));
  corpus.add("acceptor_in_pieces", begin(0, 1) + number(kReady) + number(1));
  corpus.add("acceptor_without_link", begin(2, 8) + number(kReady) + number(0));
  corpus.add("acceptor_of_noise", begin(0, 8) + number(7) + number(0));
}

void write_introductions(const Corpus& corpus) {
  const auto said = [](int magic, int rank, int to, int forged, int missing, int passed) {
    return one(magic) + one(rank) + one(to) + one(forged) + one(missing) + one(passed);
  };
  const Bytes good = said(0, 0, 0, 0, 0, 0);
  corpus.add("both", good + one(0) + good);
  corpus.add("the_second_of_three", good + one(2) + said(0, 0, 0, 1, 0, 0) + good + good);
  corpus.add("another_magic", said(1, 0, 0, 0, 0, 0) + one(0) + said(1, 0, 0, 0, 0, 0));
  corpus.add("other_ranks",
             said(0, 2, 0, 0, 0, 0) + one(1) + said(0, 3, 0, 0, 0, 0) + said(0, -128, 0, 0, 0, 0));
  corpus.add("to_another", said(0, 0, 1, 0, 0, 0) + one(0) + said(0, 0, 2, 0, 0, 0));
  corpus.add("forged", said(0, 0, 0, 1, 0, 0) + one(0) + said(0, 0, 0, 255, 0, 0));
  corpus.add("short",
             said(0, 0, 0, 0, 1, 0) + one(1) + said(0, 0, 0, 0, 48, 0) + said(0, 0, 0, 0, 30, 0));
  corpus.add("no_arena", said(0, 0, 0, 0, 0, 1) + one(0) + said(0, 0, 0, 0, 0, 2));
  corpus.add("other_numbers", said(0, 0, 0, 0, 0, 4) + one(2) + said(0, 0, 0, 0, 0, 12) +
                                  said(0, 0, 0, 0, 0, 16) + said(0, 0, 0, 0, 0, 20));
}

void write_runs(const Corpus& corpus) {
  const std::string nul(1, '\0');
  const auto add = [&](std::string_view name, int rank, const Bytes& counters,
                       const std::string& texts) {
    corpus.add(name, one(rank) + counters + raw(std::string_view(texts)));
  };
  const Bytes zeros(12);
  const Bytes failed = Bytes(10) + one(1) + one(0);
  const Bytes died = Bytes(8) + one(1) + Bytes(3);
  const Bytes second = Bytes(11) + one(2);
  const std::string welcome = nul + "0123456789abcdef0123456789abcdef\n3\na=1\n" + nul;
  add("welcome", 1, zeros, welcome);
  add("another_size", 1, zeros, nul + "name\n4\na=1\n" + nul);
  add("other_settings", 2, zeros, nul + "name\n3\na=2\nb=\n" + nul);
  add("cut_welcome", 1, zeros, nul + "name" + nul);
  add("failure", 1, failed, welcome + "other\n2\nit has no memory" + nul);
  add("mismatch", 2, failed, welcome + "mismatch\n0\nsettings differ" + nul);
  add("a_failure_of_no_rank", 1, failed, welcome + "x" + nul);
  add("rank_0_again", 1, Bytes(9) + one(1) + Bytes(2), welcome);
  add("arrivals", 0, zeros, "1" + nul);
  add("arrivals_before", 0, one(5) + one(3) + Bytes(10), "2" + nul);
  add("a_death", 0, died, "1" + nul + nul + nul + "2 " + nul);
  add("a_death_of_another_run", 0, died, "1" + nul + nul + nul + "2 name" + nul);
  add("a_second", 1, second, welcome + nul + nul + nul + "process 7 on desk" + nul);
  add("exists", 1, Bytes(5) + one(1) + Bytes(6),
      welcome + nul + nul + nul + nul + "process 7" + nul);
  add("nobody", 2, one(9) + one(3) + Bytes(10), "0" + nul);
  add("too_late", 2, zeros, nul + nul + nul + nul + "3 ranks connected" + nul);
}

void write_exchanges(const Corpus& corpus) {
  const std::string nul(1, '\0');
  // The number of ranks less 2, 8 for rank 1, and 16 for values with a proof of the key.
  const auto add = [&](std::string_view name, int first, const std::string& values) {
    corpus.add(name, one(first) + raw(std::string_view(values)));
  };
  add("table", 24, "1:1:a1:b");
  add("forged_table", 8, "1:1:a1:b");
  add("two_parts", 25, "2:1:a1:" + nul + "b4:card");
  add("a_part_is_missing", 24, "2:1:a");
  add("huge_card", 24, "1:1:a99999999999999999999:b");
  add("too_few_cards", 26, "1:1:a1:b");
  add("negative", 24, "-1:1:a1:b");
  add("cards", 17, "first" + nul + "second");
  add("forged_card", 0, "first");
}

void write_survivors(const Corpus& corpus) {
  // A vote: 2 (4 more for rank 2, 1 more for a decision), the round, and the states of all members.
  const auto vote = [](int kind, int round, std::string_view states) {
    return one(kind) + one(round) + one(static_cast<int>(states.size())) + raw(states);
  };
  const auto nul = [](std::string text) {
    for (char& each : text) each = static_cast<char>(each - '0');
    return text;
  };
  const Bytes enter = one(0), lose_2 = one(5) + one(1);
  corpus.add("all_live", enter + vote(2, 1, nul("000")) + vote(6, 1, nul("000")));
  corpus.add("one_dies", enter + lose_2 + vote(2, 1, nul("002")));
  corpus.add("two_rounds",
             enter + lose_2 + vote(3, 1, nul("002")) + enter + vote(3, 2, nul("002")));
  corpus.add("excludes_this_rank", enter + vote(3, 1, nul("100")) + vote(6, 1, nul("000")));
  corpus.add("decides_early", vote(3, 1, nul("000")) + vote(3, 1, nul("100")) + enter);
  corpus.add("malformed",
             enter + vote(2, 1, "333") + vote(2, 0, nul("000")) + vote(2, 1, nul("00")));
}

}  // namespace

void write_seeds_of_ranks(const std::filesystem::path& root) {
  write_records({root, "record_reader"});
  write_members({root, "handshake"});
  write_repairs({root, "repair_exchange"});
  write_introductions({root, "introduction"});
  write_runs({root, "incarnation"});
  write_exchanges({root, "exchange"});
  write_survivors({root, "survivors"});
  const Corpus cores(root, "cores");
  const std::string nul(1, '\0');
  cores.add("card", "0-3,8 1.5 /user.slice");
  cores.add("unknown", "- 0 -");
  cores.add("every", "0-127 0 -");
  cores.add("cpu_max", "150000 100000");
  cores.add("no_limit", "max 100000");
  cores.add("cfs", "50000" + nul + "100000");
  cores.add("cgroup", "12:cpu,cpuacct:/a\n4:cpuset:/b\n0::/user.slice/x.scope\n");
}

}  // namespace mccl::fuzz
