// Input of mccl probe: the line of a process that dials it, the greeting of a listener that it
// dials, packets, and requests. The first byte selects one of these. If bit 7 is set, the sender
// knows the key: a valid proof of the words follows them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "cli/probe/connections.h"
#include "cli/probe/packets.h"
#include "cli/probe/protocol.h"
#include "cluster/text.h"
#include "input.h"
#include "mccl/error.h"

namespace mccl::fuzz::probe_words {
namespace {

using namespace mccl::cli::probe;

const Secret& secret() {
  static const Secret secret("the key of this run");
  return secret;
}

void read_introduction(std::string text, bool proves) {
  if (proves) {
    auto words = cluster::words_of(text);
    words.resize(std::max<std::size_t>(words.size(), 2));
    text += " " + secret().prove("dials", {"nonce", words[0], words[1]}) + "\n";
  }
  const DialerLine read = parse_dialer_line(secret(), "nonce", text);
  const bool is_proved = read.state == DialerLine::State::proved;
  require(!is_proved || proves, "a process without the key was accepted");
  require(is_proved == !read.purpose.empty(), "a purpose without a proof");
  require(read.state != DialerLine::State::incomplete || text.size() < 200, "it never ends");
  // Every byte may arrive by itself. No part of a valid line may be refused.
  if (!is_proved) return;
  for (std::size_t length = 0; length < text.size(); ++length)
    require(parse_dialer_line(secret(), "nonce", text.substr(0, length)).state ==
                DialerLine::State::incomplete,
            "a part of a valid line was refused");
}

void read_packet(std::string text, bool proves) {
  if (proves) {
    auto words = cluster::words_of(text);
    words.resize(std::max<std::size_t>(words.size(), 4));
    const std::string proof =
        words[0] == "call"   ? secret().prove("call", {words[1], words[2], words[3]})
        : words[0] == "here" ? secret().prove("here", {words[1], words[2], words[3]})
        : words[0] == "who"  ? secret().prove("who", {words[1], words[2]})
                             : secret().prove("sends", {words[0], words[1]});
    text += " " + proof;
  }
  const auto message = parse_message(secret(), text);
  require(!message || proves, "a packet without a proof was accepted");
  if (!message) return;
  constexpr std::size_t kWords[] = {3, 5, 4, 5};
  require(message->words.size() == kWords[static_cast<std::size_t>(message->kind)],
          "a message of another length");
}

void read_request(std::string_view text) {
  try {
    const ProbeRequest request = parse_request(parse_json(text, "the fuzzer", "a request"));
    const bool needs_target =
        request.kind == "dial" || request.kind == "packet" || request.kind == "time";
    require(request.target.has_value() == needs_target, "a request without its target");
    require(request.bytes >= 0 && request.bytes <= 65535, "a packet that cannot be");
    require(request.seconds >= 0 && request.seconds <= 10, "a test without end");
    require(request.kind != "listen" || request.key.size() >= 16, "a short key");
  } catch (const InvalidArgument&) {
  }
}

}  // namespace

void run(Input input) {
  const std::size_t flags = input.byte();
  const std::string text(input.text());
  switch (flags % 4) {
    case 0:
      return read_introduction(text, flags & 0x80);
    case 1:
      require(nonce_in(text).has_value() == text.starts_with("mccl "), "another greeting");
      return;
    case 2:
      return read_packet(text, flags & 0x80);
    default:
      return read_request(text);
  }
}

}  // namespace mccl::fuzz::probe_words

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mccl::fuzz::probe_words::run({data, size});
  return 0;
}
