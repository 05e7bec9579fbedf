"""The pages about messages list every fault that a user can see, and only messages that exist.

A message is a string literal in src/ that contains a blank. Literals that follow one another are
one. The functions around a literal do not matter, because several functions put an error together.
Therefore a new literal counts as a fault until a page quotes it, NOT_FAULTS has the call that
receives it, or EXEMPT says why no page needs it.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
TROUBLESHOOTING, MESSAGES, RDMA = (
    ROOT / "docs" / name for name in ("troubleshooting.md", "messages.md", "rdma.md")
)
#: Folders and files whose faults a user sees at the level WARN or ERROR, or as an exception.
PLACES = (
    *("engine", "rendezvous", "transport", "node", "backend", "device", "c_api"),
    *("base/config_report.cpp", "base/library.cpp", "base/log.cpp", "base/log_file.cpp"),
    *("base/open_files.cpp", "base/placement.cpp", "base/replace_file.cpp", "base/thread.cpp"),
    *("base/wake_pipe.cpp", "base/work_state.cpp"),
)
#: Calls whose texts are logged at lower levels, or are no messages.
NOT_FAULTS = {"debug", "info", "static_assert", "start_thread", "family", "starts_with"}
#: An error about a wrong argument explains itself where the call is made. In these places,
#: InvalidArgument means that the environment, the network or another rank is at fault.
FAULTY_SURROUNDINGS = (
    *("rendezvous", "transport", "backend/mpi", "backend/nccl"),
    *("device/cuda/driver.cpp", "base/placement.cpp"),
)
ARGUMENT = "wrong argument of a call"
#: Patterns of a path and of a text, and the reason for which no page lists such literals.
EXEMPT = (
    (r"rendezvous|transport/tcp", r"^(mccl|MCCL) [\w. ]+$|^mccl/|^traffic upd", "label of a key"),
    (r"rendezvous/meeting/join", r"^cmd=", "request to a launcher"),
    (r"engine/metrics_", r"^\d{3} |^HTTP/|^only GET|/metrics|is too long", "answer over HTTP"),
    (r"engine/status_server", r"^cannot send the answer|^the process does not", "level DEBUG"),
    (r"backend/direct/auto_path", r"made the call with host|see the warning", "level INFO"),
    (r"backend/native/calibration", r"^calibration/|link through|GB/s|^us ", "name of a figure"),
    (r"engine/calls/completions", r"not a std::exception", "part of a text that is listed"),
    (r"backend/mpi/(abi|finder)", r"the ABI of MPI 5|Open MPI's mpirun", "name of a program"),
    (r"transport/(rdma|shm)/link", r"at offset|more than once", "description of a link"),
    (r"transport/rdma/survey/advice", r"^ifconfig|^ip addr", "command at the end of a listed text"),
    (r"transport/tcp/encryption", r"^\); check the OpenSSL", "end of a text that is listed"),
    (r"transport/\w+/link", r"^cannot peek|^cannot consume", "wrong use of a link inside MCCL"),
    (r"backend/arguments", r"own part of the output", ARGUMENT),
    (
        r"c_api",
        r"\(required if|NUL need|the value has|^no valid hand|^the hand|unknown red",
        ARGUMENT,
    ),
    (r"base/work_state", r"^a coalesced group", "name of a call"),
    (r"base/config_report", r"^\||Only with|no effect without", "part of docs/settings.md"),
)
#: Length from which a constant part of a message identifies it.
TELLING = 16
#: Length from which the longest part identifies a message that has no longer one.
SHORTEST = 8

TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*|'(?:\\.|[^'\\])'|"
    r'R"(?P<mark>\w*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"|'
    r"(?P<call>[\w:]*)\s*\(|\)",
    re.DOTALL | re.MULTILINE,
)
#: Text that varies, and the ends of clauses.
BREAK = re.compile(r"\{[^{}]*\}|[…,;:()\"'`\n](?!\w)|[\"'`(](?=\w)|[.?] ")
RAISED = re.compile(r"\w*Error|InvalidArgument|LinkClosed|warn|error|fail|refuse|lost|give_up")


@dataclass
class Literal:
    """A string literal, and the names of the calls whose arguments contain it."""

    path: str
    line: int
    text: str
    calls: list[str]

    @property
    def parts(self) -> list[str]:
        """Its constant parts that identify it, or none if it is too short for a message."""
        parts = [part.strip(" .?") for part in BREAK.split(self.text)]
        longest = max(map(len, parts))
        shortest = TELLING
        if longest < TELLING and any(map(RAISED.fullmatch, self.calls)):
            shortest = max(SHORTEST, longest)
        return [part for part in parts if " " in part and len(part) >= shortest]

    @property
    def is_fault(self) -> bool:
        """True if a user can see it."""
        ignored = set(NOT_FAULTS)
        if not self.path.startswith(FAULTY_SURROUNDINGS):
            ignored.add("InvalidArgument")
        return bool(self.parts) and not ignored.intersection(self.calls)

    def __str__(self) -> str:
        return f"src/{self.path}:{self.line}: {self.text}"


def literals_of(path: str, source: str) -> Iterator[Literal]:
    """Yields the literals of a file of C++."""
    calls: list[str] = []
    last, end = None, 0
    for token in TOKEN.finditer(source):
        text = token["raw"] if token["text"] is None else token["text"]
        if text is not None:
            text = text.replace('\\"', '"').replace("\\n", "\n")
            if last and not source[end : token.start()].strip():
                last.text += text
            else:
                if last:
                    yield last
                line = source.count("\n", 0, token.start()) + 1
                last = Literal(path, line, text, list(calls))
            end = token.end()
        elif token["call"] is not None:
            calls.append(token["call"].split("::")[-1])
        elif token[0] == ")" and calls:
            calls.pop()
    if last:
        yield last


@functools.cache
def faults() -> list[Literal]:
    """Returns the literals that a user can see, in the order of the files."""
    found = []
    for place in PLACES:
        for file in sorted((SOURCE / place).rglob("*")) or [SOURCE / place]:
            if file.suffix in (".cpp", ".h"):
                path = str(file.relative_to(SOURCE))
                found += [each for each in literals_of(path, file.read_text()) if each.is_fault]
    return found


def reason_to_exempt(literal: Literal) -> str | None:
    """Returns why no page needs the literal."""
    for path, text, reason in EXEMPT:
        if re.match(path, literal.path) and re.search(text, literal.text):
            return reason
    return None


def quotes_of(page: Path) -> list[str]:
    """Returns the texts between backticks on a page, outside code blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([^`]+)`", text)


def test_every_fault_is_on_a_page():
    pages = (TROUBLESHOOTING, MESSAGES, RDMA)
    quotes = "\n".join(quote for page in pages for quote in quotes_of(page))
    found = faults()
    missing = [
        str(each)
        for each in found
        if not reason_to_exempt(each) and not any(part in quotes for part in each.parts)
    ]
    assert len(found) > 600
    assert missing == [], "add these messages to docs/messages.md:\n" + "\n".join(missing)


@pytest.mark.parametrize("pattern", EXEMPT, ids=lambda pattern: pattern[2])
def test_every_exemption_is_needed(pattern: tuple[str, str, str]):
    path, text, _ = pattern
    assert any(re.match(path, each.path) and re.search(text, each.text) for each in faults())


def sources() -> str:
    """Returns the sources of MCCL, in which literals that follow one another are one."""
    files = [
        file
        for folder in ("src", "bindings", "python")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".cpp", ".h", ".py"}
    ]
    text = "".join(file.read_text() for file in files).replace('\\"', '"')
    return re.sub(r'"\s*(?:fmt::format\()?f?"', "", text)


def unknown_in(quotes: list[str]) -> list[str]:
    """Returns the parts of the quotes that occur in no source; … is any text."""
    text = sources()
    return [
        part
        for quote in quotes
        for part in re.split("[…`:;,]", quote)
        if len(part.strip()) > 12 and part.strip() not in text
    ]


def test_the_messages_of_troubleshooting_exist():
    page = TROUBLESHOOTING.read_text()
    headings = re.findall(r"^### `(.+)`$", page, re.M)
    causes = re.findall(r"^\| [^|]+ \| `([^`|]+)`", page, re.M)
    assert len(headings) >= 25
    assert len(causes) >= 12
    foreign = "The client socket has failed to connect"
    assert unknown_in([q for q in [*headings, *causes] if not q.startswith(foreign)]) == []


def test_the_messages_of_the_full_list_exist():
    cells = re.findall(r"^\| ([^|]+) \|", MESSAGES.read_text(), re.M)
    quotes = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    assert len(quotes) >= 300
    assert unknown_in(quotes) == []


SAMPLE = """
#include "base/no_message_at_all.h"
// A comment "that says nothing to a user".
void f() {
  log_.debug("a line that only developers see {}", x);
  if (bad) throw PeerError(fmt::format("rank {} has a fault of "
                                       "an unknown kind: {}", rank, "because of the moon"));
  throw InvalidArgument("an argument is certainly wrong");
  return "a text that \\"some\\" function returns";
}
"""


def test_literals_are_found():
    found = [each for each in literals_of("engine/f.cpp", SAMPLE) if each.is_fault]
    assert [(each.line, each.text) for each in found] == [
        (6, "rank {} has a fault of an unknown kind: {}"),
        (7, "because of the moon"),
        (9, 'a text that "some" function returns'),
    ]
    assert found[0].parts == ["has a fault of an unknown kind"]
