// Writes the seeds of the fuzz targets, one file each. The seeds are valid input.
//
//   mccl_fuzz_seeds tests/fuzz/corpus
#include "seeds.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "engine/collectives/group_window.h"
#include "engine/groups/enqueued_calls.h"
#include "engine/links/frame.h"
#include "engine/messages/messages.h"
#include "engine/peers/control.h"
#include "kernels/codec/codec.h"
#include "node/window.h"
#include "rendezvous/cabling/link_state.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/connections/handshake.h"
#include "rendezvous/store/memory_store.h"
#include "script.h"
#include "transport/rdma/survey/survey.h"
#include "transport/rdma/transport.h"

namespace {

using namespace mccl;
using namespace mccl::fuzz;

engine::Call a_call() {
  return {Collective::all_reduce, DType::f32, ReduceKind::max, -1, 1000, 7, -1, 0, 99};
}

void write_frames(const Corpus& corpus) {
  constexpr std::string_view kNames[] = {"collective", "eager",  "request", "grant",
                                         "data",       "credit", "pulled"};
  static_assert(std::size(kNames) == engine::kFrameKindCount);
  for (int kind = 0; kind < engine::kFrameKindCount; ++kind) {
    engine::Frame frame;
    frame.kind = static_cast<engine::FrameKind>(kind);
    frame.call = a_call();
    frame.call.tag = 3;
    frame.payload_bytes = kind == 0 || kind == 1 || kind == 4 ? 4000 : 0;
    frame.has_crc = kind == 4;
    const engine::FrameBytes bytes = engine::encode(frame);
    corpus.add(kNames[kind], raw(std::uint32_t{65536}) + one(frame.has_crc ? 3 : 2) + raw(bytes));
  }
}

void write_controls(const Corpus& corpus) {
  constexpr std::string_view kNames[] = {
      "open",   "link",     "declined",    "closed",   "window",  "abort",   "probe",
      "status", "goodbye",  "heartbeat",   "arrived",  "ending",  "blocked", "survivors",
      "agreed", "describe", "description", "received", "enqueued"};
  static_assert(std::size(kNames) == engine::kControlKindCount);
  Bytes all = one(6);
  for (int kind = 0; kind < engine::kControlKindCount; ++kind) {
    engine::ControlMessage message;
    message.kind = static_cast<engine::ControlKind>(kind);
    message.key = {12345, transport::Purpose::collective, 1};
    message.call = a_call();
    if (message.kind == engine::ControlKind::abort) {
      message.failure = {engine::FailureKind::aborted, "rank 1 has had enough", {}, GroupRank(1)};
    }
    if (message.kind == engine::ControlKind::link) {
      message.transport = "shm";
      message.blob.assign(16, std::byte{1});
    }
    if (message.kind == engine::ControlKind::window) {
      message.blob = engine::encode(engine::WindowOffer{1 << 20, {4096, 1 << 21}});
    }
    if (message.kind == engine::ControlKind::enqueued) {
      message.blob = engine::encode(engine::Announcement{true, false, 77});
    }
    corpus.add(kNames[kind], one(63) + engine::encode(message));
    all = all + engine::encode(message);
  }
  corpus.add("all_in_pieces_of_7", all);
}

void write_store_requests(const Corpus& corpus) {
  using namespace rendezvous;
  const Bytes set = encode(StoreKind::set, "mccl/local/0", "some value", 0);
  const Bytes get = encode(StoreKind::get, "mccl/local/0", "", 60'000);
  const Bytes add = encode(StoreKind::add, "mccl/count", "", 1);
  corpus.add("set_get", set + get);
  corpus.add("get_of_nothing", get);
  corpus.add("add_twice", add + add);
  corpus.add("add_to_text", encode(StoreKind::set, "mccl/count", "seven", 0) + add);
  corpus.add("empty_key", encode(StoreKind::set, "", "", 0));
  corpus.add("answer", encode(StoreKind::ok, {}, "some value", 3));
}

void write_labels(const Corpus& corpus) {
  std::array<std::byte, node::kLabelBytes> label{};
  engine::write_label(a_call(), label);
  corpus.add("all_reduce", raw(label));
  engine::write_label({Collective::broadcast, DType::u8, ReduceKind::sum, 2, 0, 1, -1, 0, 0},
                      label);
  corpus.add("broadcast", raw(label));
}

void write_window_offers(const Corpus& corpus) {
  const auto offer = [](std::uint64_t call_bytes, std::uint64_t offset, std::uint64_t bytes) {
    return one(1) + raw(call_bytes) + raw(offset) + raw(bytes) + raw(std::uint64_t{1});
  };
  const Bytes good = offer(16 << 10, 4096, 40 << 10);
  corpus.add("two_ranks", one(0) + good);
  corpus.add("four_ranks", one(2) + good + good + good);
  corpus.add("no_memory_left", one(1) + good + offer(0, 0, 0));
  corpus.add("cut", one(0) + one(0) + one(5) + raw(std::uint32_t{7}) + one(9));
  corpus.add("too_little", one(0) + offer(16 << 10, 4096, 8 << 10));
  corpus.add("outside", one(0) + offer(16 << 10, 126 << 10, 40 << 10));
  corpus.add("around_the_end", one(0) + offer(16 << 10, UINT64_MAX - 4095, 40 << 10));
}

void write_rdma(const std::filesystem::path& root) {
  namespace rdma = transport::rdma;
  rdma::Gid gid{.index = 3, .type = rdma::GidType::roce_v2, .bytes = {}};
  gid.bytes[10] = gid.bytes[11] = 0xff;
  rdma::Offer offer;
  offer.queue_pair = 17;
  offer.token = 7;
  offer.gids = {gid, gid};
  rdma::Offer answer = offer;
  answer.is_answer = 1;
  answer.service = rdma::Service::uc;
  answer.gids = {gid};
  const Corpus offers(root, "rdma_offer");
  offers.add("offer", one(1) + rdma::encode(offer));
  offers.add("answer", one(1) + rdma::encode(answer));
  Bytes head(rdma::kHeaderBytes);
  rdma::encode({.token = 0x0123456789abcdef,
                .sequence = 5,
                .bytes = 3,
                .returned = 2,
                .kind = static_cast<std::uint16_t>(rdma::MessageKind::data)},
               head);
  offers.add("message", one(0) + head + Bytes(3));

  const Corpus cards(root, "rdma_card");
  rdma::Card card;
  card.host = "there";
  card.services = {rdma::Service::uc};
  card.devices = {{"rdma_en2", {"RoCE v2 over IPv4"}, ""}, {"rdma_en3", {}, "port 1 is down"}};
  cards.add("all", raw(rdma::serialise(card)));
  card.leads_to = {{0, 1}, {}, {1}};
  cards.add("by_cable", raw(rdma::serialise(card)));
  card.devices.clear();
  card.leads_to.clear();
  card.why = "there is no libibverbs.so.1";
  cards.add("none", raw(rdma::serialise(card)));
  card.why.assign(190, '\x7f');  // escapes make it longer than allowed
  cards.add("escapes", raw(rdma::serialise(card)));
  cards.add("huge_place", raw(R"(["there","",["rc"],[["a",["RoCE v2 over IPv4"],""]],[[1e26]]])"));

  const Corpus tables(root, "device_table");
  tables.add("pair", raw(R"([[null,"a"],["b",null]])"));
  tables.add("ring", raw(R"([[null,"a",null,["b"]],["a",null,"b",null],)"
                         R"([null,"a",null,"b"],[["a"],null,"b",null]])"));
  tables.add("mesh", raw(R"([[null,["a","b"],"c"],[["a","b"],null,"c"],["a","b",null]])"));
}

void write_shared_links(const Corpus& corpus) {
  const Bytes here(16);  // added to the place, so zeros keep the correct one
  const auto counts = [](std::uint64_t written, std::uint64_t taken, int left = 0) {
    return raw(written) + raw(taken) + raw(written) + raw(taken) + one(left);
  };
  const auto use = [](std::uint16_t wanted, int how) { return raw(wanted) + one(how); };
  corpus.add("nothing_there", here + counts(0, 0) + use(48, 0));
  corpus.add("peek", here + counts(100, 0) + use(48, 0) + counts(100, 0) + use(52, 0));
  corpus.add("read", here + counts(1000, 0) + use(0, 1));
  corpus.add("write", here + counts(0, 0) + use(100, 2) + counts(0, 0) + use(0, 3));
  corpus.add("more_than_fits", here + counts(UINT64_MAX, 5) + use(48, 0));
  corpus.add("left", here + counts(100, 0, 2) + use(48, 0) + counts(100, 100, 3) + use(48, 0));
  corpus.add("elsewhere", raw(std::uint64_t{1} << 40) + Bytes(8));
}

void write_neighbours(const Corpus& corpus) {
  corpus.add("four_on_one_node", one(3) + one(0) + raw("0 2 3\n0 1 3\n0 1 2\n"));
  corpus.add("two_pairs", one(3) + one(3) + raw("1:1:11:01:31:2"));
  corpus.add("strangers", one(3) + one(0) + raw("99 -1 7x\n1 1 1\n4294967296\n"));
  corpus.add("no_table", one(3) + one(1) + raw("1:9:1"));
}

/// Writes seeds of two hosts each, as reported by mccl probe.
void write_what_hosts_say(const Corpus& corpus) {
  using nlohmann::json;
  const auto of_linux = [](int number) {
    const json interfaces = {
        {{"name", "eth0"},
         {"kind", "cable"},
         {"up", true},
         {"carrier", true},
         {"mbit_per_s", 1000},
         {"mtu", 1500},
         {"mac", "52:54:00:00:00:01"},
         {"addresses", {fmt::format("10.0.0.{}/24", number), "fd00::1/64"}},
         {"rdma", "mlx5_0"}},
        {{"name", "tb0"}, {"kind", "Thunderbolt"}, {"up", true}, {"mtu", 900}, {"bridge", "br0"}}};
    return json{{"system", "Linux"},
                {"is_root", true},
                {"open_files", 1024},
                {"most_open_files", "unlimited"},
                {"locked_kib", 64},
                {"cores", 8},
                {"shared_kib", 9},
                {"settings", {{"MCCL_TIMEOUT", "x"}}},
                {"versions", {{"torch", "2.11.0"}, {"mccl", "0.1.0"}}},
                {"interfaces", interfaces},
                {"routes", {{{"to", "10.0.0.0/24"}, {"interface", "eth0"}}}},
                {"ports",
                 {{{"interface", "tb0"},
                   {"own", fmt::format("u{}", number)},
                   {"peer_id", fmt::format("u{}", 3 - number)},
                   {"mbit_per_s", 40000}}}},
                {"rdma", {{{"name", "mlx5_0"}, {"interface", "eth0"}, {"state", "DOWN"}}}},
                {"gpus", {{{"name", "H100"}, {"memory_mib", 81559}}, {{"name", "H100"}}}},
                {"gpu_links", "\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\tX\tNV18\nGPU1\tNV18\tX\n"},
                {"gpu_peers", "GPU0 X CNS\nGPU1 CNS X\n"}}
        .dump();
  };
  const auto of_macos = [](int number) {
    const std::string ifconfig = fmt::format(
        "en2: flags=8863<UP,RUNNING> mtu 1500\n\tether 36:f9:11:00:00:01\n"
        "\tinet 10.1.0.{} netmask 0xffffff00\n\tstatus: active\n"
        "bridge0: flags=8863<UP> mtu 1500\n\tmember: en2 flags=3<X>\n",
        number);
    const std::string profiler = fmt::format(
        R"({{"SPThunderboltDataType": [{{"domain_uuid_key": "U{}", )"
        R"("receptacle_1_tag": {{"receptacle_id_key": "1", "current_speed_key": "80 Gb/s"}}, )"
        R"("_items": [{{"_items": [{{"domain_uuid_key": "U{}"}}]}}]}}]}})",
        number, 3 - number);
    return json{{"system", "macOS"},
                {"has_sudo", true},
                {"outputs",
                 {{"ifconfig", ifconfig},
                  {"system_profiler", profiler},
                  {"networksetup", "Hardware Port: Thunderbolt 1\nDevice: en2\n"},
                  {"ibv_devices", "rdma_en2 0036f911\n"},
                  {"netstat", "10.1/24 link#1 UCS en2\n127 lo0\n"},
                  {"nvidia-smi", "H100, 81559, 570.1\n"},
                  {"python", "torch 2.11.0\n"}}}}
        .dump();
  };
  corpus.add("linux", of_linux(1) + "\n===\n" + of_linux(2));
  corpus.add("macos", of_macos(1) + "\n===\n" + of_macos(2));
  corpus.add("mixed", of_macos(1) + "\n===\n" + of_linux(2));
}

void write_what_people_say(const std::filesystem::path& root) {
  const Corpus lists(root, "node_list");
  lists.add("one", "desk");
  lists.add("range", "n[08-10,3],m.lan");
  lists.add("product", "r[1-2]n[1-2]x");
  lists.add("too_many", "n[1-4000000000]");
  const Corpus settings(root, "settings_json");
  settings.add("some", R"({"transport": "tcp", "port_base": 31000, "chunk_bytes": "1M"})");
  settings.add("none", " {} ");
  settings.add("wrong_type", R"({"port_base": [1e999]})");
  const Corpus hosts(root, "hostfile");
  hosts.add("list", R"([{"ssh": "a", "ips": ["10.0.0.1", "fe80::1%eth0"]}, {"ssh": "me@b:22"}])");
  hosts.add("object", R"({"backend": "ring", "envs": ["A=1"], "env": {"B": "x=y"},
 "hosts": [{"ssh": "a", "slots": 2, "rdma": [null], "cwd": "/t", "python": "/p", "port": 1}]})");
  const Corpus records(root, "flight_record");
  records.add("whole", R"({"format": "mccl flight record", "version": 1, "job": "j", "rank": 0,
 "size": 2, "host": "desk", "pid": 7, "unix_ns": 1800000000000000000,
 "groups": [{"index": 0, "name": "world", "id": "ab", "rank": 0, "members": [0, 1]}],
 "calls": [{"number": 0, "group": 0, "call": "all_reduce", "op": "sum", "dtype": "f32",
   "state": "done", "sequence": 1, "bytes": 8, "algorithm": "ring", "transport": "tcp",
   "submitted_ns": 1700000000000000000, "started_ns": 1700000000000000100,
   "ended_ns": 1700000000000000200},
  {"number": 1, "group": 0, "call": "send", "dtype": "u8", "state": "running", "sequence": 1,
   "bytes": 8, "peer": 1, "submitted_ns": 1700000000000000300},
  {"number": 2, "group": 0, "call": "all_reduce", "op": "sum", "dtype": "f32", "state": "failed",
   "sequence": 2, "bytes": 8, "waits_for": 1, "submitted_ns": 1700000000000000400}]})");
  records.add("empty", R"({"format": "mccl flight record", "version": 1, "job": "", "rank": 0,
 "size": 1, "host": "", "pid": 1, "unix_ns": 0, "groups": [], "calls": []})");
  const Corpus statuses(root, "rank_status");
  const std::string status = R"({"format": "mccl status", "version": 1, "job": "j", "rank": 0,
 "size": 2, "host": "desk", "pid": 40, "calls": 12, "errors": 1, "bytes_sent": 9,
 "bytes_received": 8, "answers": true,
 "groups": [{"name": "w", "id": "ab", "rank": 0, "members": [0, 1], "last": "barrier #4",
   "failure": "it failed", "pending": [{"call": "all_reduce #5", "state": "running",
     "waited_s": 20.5, "waits_for": [1], "why": ", waiting"}]}],
 "peers": [{"rank": 1, "transport": "shm", "state": "silent", "reason": "", "bytes_sent": 1,
   "bytes_received": 2}]})";
  statuses.add("waits", status);
  statuses.add("others",
               nlohmann::json(
                   {{"format", "mccl others"},
                    {"version", 1},
                    {"ranks", {{{"rank", 0}, {"report", status}}, {{"rank", 1}, {"report", ""}}}}})
                   .dump());
  const Corpus news(root, "cable_news");
  const rendezvous::Sighting sighting{
      2, 7, true, 5100, {{.a = 0, .b = 2, .at_a = "10.0.0.1", .at_b = "10.0.0.2"}}};
  for (const auto& [name, kind] : {std::pair("sighting", rendezvous::CableNews::Kind::sighting),
                                   std::pair("decision", rendezvous::CableNews::Kind::decision),
                                   std::pair("cut", rendezvous::CableNews::Kind::cut),
                                   std::pair("alive", rendezvous::CableNews::Kind::alive),
                                   std::pair("ended", rendezvous::CableNews::Kind::ended)}) {
    const Bytes whole = rendezvous::encode({kind, sighting, "it is cut", {1, 2, 3, 4, 5}});
    news.add(name, Bytes(whole.begin() + rendezvous::kNewsHeaderBytes, whole.end()));
  }
  const Corpus tables(root, "address_table");
  tables.add("ring", R"([["10.0.1.1:5000"], ["10.0.2.1:5001", "10.0.3.1:5001"], ["[fe80::1]:7"]])");
  const Corpus endpoints(root, "endpoint");
  endpoints.add("one", rendezvous::serialise({3, "desk/42", 29600, {"10.0.0.1"}, false}));
  endpoints.add("two", rendezvous::serialise({0, "desk", 1, {"fe80::1%eth0", "::1"}, true}));
  endpoints.add(
      "huge_port",
      R"({"addresses":["::1"],"host":"desk","host_name":"desk","listed":false,"port":295e99,"rank":3})");
}

/// Returns the bytes that a stranger with another key sends to a member, until the member refuses
/// it.
Bytes stranger_says(bool to_dialer) {
  using rendezvous::Handshake;
  const rendezvous::Party member = {1, 4, "key", "chunk_bytes=1\n"};
  const rendezvous::Party stranger = {2, 4, "another", "chunk_bytes=1\n"};
  Handshake hears = to_dialer ? Handshake::dialer(member, 2, {}) : Handshake::acceptor(member);
  Handshake says = to_dialer ? Handshake::acceptor(stranger) : Handshake::dialer(stranger, 1, {});
  Bytes said;
  const auto pass = [&said](Handshake& from, Handshake& to, bool keep) {
    const std::size_t n = std::min(from.output().size(), to.wanted());
    const Bytes bytes(from.output().begin(),
                      from.output().begin() + static_cast<std::ptrdiff_t>(n));
    from.sent(n);
    if (n > 0) to.feed(bytes);
    if (keep) said = said + bytes;
    return n > 0;
  };
  while (pass(says, hears, true) || pass(hears, says, false)) {
  }
  return said;
}

/// Writes the scripts of messages_fuzz.cpp.
void write_messages(const Corpus& corpus) {
  using fuzz::Script;
  constexpr int kEager = 1, kRequest = 2, kGrant = 3, kData = 4, kCredit = 5;
  const auto step = [](Script kind, int rail = 0) {
    return one(static_cast<int>(kind)) + one(rail);
  };
  const auto call = [&step](Script kind, int tag, int count, int from_any = 0) {
    const auto dtype = static_cast<std::uint8_t>(DType::u8);
    return step(kind) + raw(fuzz::ScriptCall{dtype, static_cast<std::uint8_t>(tag),
                                             static_cast<std::uint8_t>(from_any), 0,
                                             static_cast<std::uint16_t>(count)});
  };
  const auto frame = [&step](int kind, int sequence, int count, int message, int bytes,
                             int rail = 0) {
    const auto dtype = static_cast<std::uint8_t>(DType::u8);
    const auto sent = static_cast<std::uint16_t>(bytes);
    return step(Script::frame, rail) +
           raw(fuzz::ScriptFrame{
               static_cast<std::uint8_t>(kind), dtype, 1, static_cast<std::uint8_t>(sequence),
               static_cast<std::uint16_t>(count), static_cast<std::uint16_t>(message), sent, sent});
  };
  const auto receive = [&call](int count, int from_any = 0) {
    return call(Script::receive, 1, count, from_any);
  };
  const Bytes one_rail = one(0) + one(0), two_rails = one(0) + one(1);
  corpus.add("eager_expected", one_rail + receive(100) + frame(kEager, 1, 100, 0, 100));
  corpus.add("eager_from_any", one_rail + receive(100, 1) + frame(kEager, 1, 100, 0, 100));
  corpus.add("eager_unexpected",
             one_rail + call(Script::receive, 2, 1) + frame(kEager, 1, 100, 0, 100) + receive(100));
  corpus.add("eager_of_nothing", one_rail + receive(0) + frame(kEager, 1, 0, 0, 0));
  const Bytes pieces = frame(kData, 1, 5000, 0, 4096) + frame(kData, 1, 5000, 1, 904);
  corpus.add("granted", one_rail + receive(5000) + frame(kRequest, 1, 5000, 0, 0) + pieces);
  corpus.add("granted_late", one_rail + call(Script::receive, 2, 1) +
                                 frame(kRequest, 1, 5000, 0, 0) + receive(5000) + pieces);
  corpus.add("granted_on_two_rails", two_rails + receive(8192) + frame(kRequest, 1, 8192, 0, 0) +
                                         frame(kData, 1, 8192, 1, 4096, 1) +
                                         frame(kData, 1, 8192, 0, 4096, 0));
  corpus.add("sent_at_once",
             one_rail + call(Script::send, 1, 100) + step(Script::drain) +
                 frame(kCredit, 0, 100 + static_cast<int>(engine::kEagerOverhead), 0, 0) +
                 receive(1));
  corpus.add("sent_when_granted", one_rail + call(Script::send, 1, 60000) + step(Script::drain) +
                                      frame(kGrant, 1, 0, 0, 0) + step(Script::drain) +
                                      step(Script::drain));
  corpus.add("taken_back", one_rail + receive(100) + step(Script::cancel) + receive(7));
  corpus.add("leaves", one_rail + receive(100) + step(Script::leave));
}

void write_blocks(const Corpus& corpus) {
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 97;
  for (int number = 1; number < kCodecCount; ++number) {
    const auto codec = static_cast<Codec>(number);
    const Coding coding = coding_of({codec, 0.001}, 1);
    // A topk block has 4096 elements. For other codecs, 200 elements give two blocks.
    const std::size_t count = codec == Codec::topk ? values.size() : 200;
    Bytes blocks(coding.bytes(count, Coded::contribution));
    kernels::encode(coding, Coded::contribution, DType::f32, values.data(), count, blocks.data());
    corpus.add(name_of(codec), one(number - 1) + one(56) + one(coding.kept - 1) + blocks);
  }
}

void write_metrics_requests(const Corpus& corpus) {
  const auto request = [](std::string_view text) { return one(63) + one(0) + raw(text); };
  corpus.add("text", request("GET /metrics HTTP/1.1\r\nHost: desk:9400\r\n\r\n"));
  corpus.add("open_metrics", request("GET /metrics?x=1 HTTP/1.1\r\nAccept: "
                                     "application/openmetrics-text;version=1.0.0\r\n\r\n"));
  corpus.add("another_page", request("GET / HTTP/1.0\r\n\r\n"));
  corpus.add("in_bytes", one(0) + one(0) + raw("POST /metrics HTTP/1.1\r\n\r\n"));
  corpus.add("too_long", one(255) + one(255) + raw("GET /metrics HTTP/1.1\r\nX: 0123456789\r\n"));
}

void write_agreements(const std::filesystem::path& root) {
  const Corpus settings(root, "agreement");
  settings.add("equal", "chunk_bytes=4194304\ncompression=none\n");
  settings.add("another_value", "chunk_bytes=65536\ncompression=none\n");
  settings.add("unknown_names", "a=1\n=2\nb\n\nchunk_bytes=\n");
  const Corpus keys(root, "key_agreement");
  const std::string offer = std::string(64, 'a') + "\n/dev/shm/mccl-key-" + std::string(32, '0');
  const auto text = [](const std::string& value) { return raw(std::string_view(value)); };
  const std::string nul(1, '\0');
  keys.add("in_the_file", one(0) + text(offer + nul + "in the file"));
  keys.add("refused", one(0) + text(offer + nul + "refused\n\nrank 2\n2"));
  keys.add("published",
           one(1) + text(offer + nul + "published\n" + std::string(64, 'b') + "\nrank 2\n2"));
  keys.add("published_to_one_that_asks_for_proof",
           one(0) + text(offer + nul + "published\n" + std::string(64, 'b') + "\nrank 2\n2"));
  const Corpus pmi(root, "pmi");
  pmi.add("answers",
          "cmd=response_to_init rc=0 pmi_version=1\ncmd=my_kvsname kvsname=kvs_1\n"
          "cmd=barrier_out\ncmd=get_result rc=0 value=10.0.0.1:29500\ncmd=finalize_ack\n");
  pmi.add("failure", "cmd=response_to_init rc=-1 msg=no\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: mccl_fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path root(arguments[1]);
  write_frames({root, "frame"});
  write_controls({root, "control"});
  write_store_requests({root, "store_wire"});
  write_labels({root, "label"});
  write_window_offers({root, "window_offer"});
  write_rdma(root);
  write_shared_links({root, "shm_link"});
  write_neighbours({root, "neighbours"});
  write_what_people_say(root);
  write_what_hosts_say({root, "host_words"});
  const Corpus handshakes(root, "handshake");
  handshakes.add("stranger_dials", one(0) + stranger_says(false));
  handshakes.add("stranger_answers", one(1) + stranger_says(true));
  handshakes.add("after_the_challenge", one(2) + Bytes(64));
  write_agreements(root);
  write_seeds_of_ranks(root);
  write_seeds_of_programs(root);
  write_messages({root, "messages"});
  write_metrics_requests({root, "metrics_request"});
  write_blocks({root, "blocks"});
  return 0;
}
