"""The bounds of docs/security.md: each has a constant and a test that exist."""

import re

import pytest
from launching import ROOT

#: Constants and test of each row of the tables of bounds, by the text of its first column.
BOUNDS: dict[str, tuple[tuple[str, ...], str]] = {
    "unauthenticated connections": (
        ("kMaxGuests",),
        "HostilePeer.TwoThousandConnectionsDelayNothing",
    ),
    "unauthenticated connections of one address before it counts as a flood": (
        ("kShare",),
        "Acceptor.AFloodFromOneAddressDoesNotBlockOthers",
    ),
    "duration of the handshake": (
        ("kGuestLimit",),
        "Acceptor.ClosesUnauthenticatedConnectionsAfterFiveSeconds",
    ),
    "bytes received before the proof": (
        ("kDialerProofBytes",),
        "Handshake.ReadsAndSendsFewBytesBeforeTheProof",
    ),
    "bytes sent before the proof": (
        ("kChallengeBytes",),
        "Handshake.ReadsAndSendsFewBytesBeforeTheProof",
    ),
    "connections that a rank accepts after the start": (
        (
            "kPerSecond",
            "kLeastAtOnce",
        ),
        "Acceptor.DelaysAFloodOfConnectionsAfterTheMeeting",
    ),
    "connections that the store accepts": (
        ("kAdmission",),
        "TcpStore.AdmitsAFloodAtALimitedRate",
    ),
    "log lines about refused connections": (
        ("kSilence",),
        "TcpStore.AWrongKeyIsLoggedOnceAndCounted",
    ),
    "log lines about a lack of open files": (
        ("kSilence",),
        "Turnstile.WarnsOfAShortageOfDescriptorsOnceAMinute",
    ),
    "silent connections to the shared-memory socket": (
        ("kMostStrangers",),
        "Strangers.ThatConnectInLargeNumbersAreIgnored",
    ),
    "clients of the status socket (same user only)": (
        (
            "kPatience",
            "kBacklog",
            "kRequestBytes",
        ),
        "StatusServer.HasFewWaitingClientsAndReadsLittle",
    ),
    "clients of the metrics port": (
        ("kScrapePatience", "kMostRequestBytes"),
        "MetricsServer.RefusesOtherRequests",
    ),
    "settings in a handshake": (("kMaxAgreementBytes",), "Handshake.BoundsLengthsBeforeAllocation"),
    "clients of the store": (("StoreLimits",), "StoreServer.HasALimitedNumberOfClients"),
    "time for an incomplete request or an unread answer": (
        ("StoreLimits",),
        "StoreServer.ClosesAClientThatStopsInsideARequest",
    ),
    "buffers of the store for requests and answers": (
        ("kSharedBytes",),
        "TcpStore.PartialRequestsUseBoundedMemory",
    ),
    "the store's entries": (("kMaxTableBytes",), "MemoryStore.IsFullAtItsLimit"),
    "size of a control message": (
        (
            "kMostBlobBytes",
            "kReasonLimit",
        ),
        "ControlMessage.RefusesABlobAboveTheLimit",
    ),
    "unsent control messages to a peer that does not read them": (
        ("kMostUnsentBytes",),
        "Peers.APeerThatDoesNotReadIsLostBeforeItsQueueGrowsLarge",
    ),
    "bytes that a rank takes from a connection when it replaces it": (
        ("kMostTaken",),
        "TcpLink.AClosingConnectionTakesABoundedNumberOfBytes",
    ),
    "bytes kept for a peer behind relays that does not report what it has received": (
        ("kMostUnreported",),
        "TcpLink.ARelayedLinkKeepsABoundedNumberOfBytes",
    ),
    "connections for links that this rank does not have": (
        ("kMostUnknown", "kUnknownLimit"),
        "Repairs.HoldFewConnectionsForLinksThatThisRankDoesNotHave",
    ),
    "status reports for `mccl status` on another host": (
        ("kMostBytes",),
        "Reports.APeerCannotFillTheMemoryOfTheRankThatAsks",
    ),
    "requests for a status report": (("kFresh",), "Reports.APeerGetsOneReportInAnInterval"),
    "messages about groups that do not exist yet": (
        ("kMostBytesOfPeer",),
        "UnmadeGroups.TooManyMessagesFromOnePeerAreItsError",
    ),
    "messages before a receive is posted": (
        ("kEagerCredit", "kMostRequests"),
        "HostileMessages.MoreAnnouncementsThanAreKept",
    ),
    "decisions on the surviving members": (
        ("decisions_",),
        "Agreement.RefusesDecisionsOfRoundsThatTheMemberHasNotEntered",
    ),
    "size of a frame": (("payload_limit",), "Frame.RefusesInvalidFrames"),
    "size of a message about cables": (
        ("kMostNewsBytes",),
        "CableNews.RefusesNewsThatNoRankCanHaveSent",
    ),
    "connections that a relay passes on for one neighbour": (
        ("kMostRelayed",),
        "Relaying.RelaysALimitedNumberOfConnectionsForOneNeighbour",
    ),
    "log lines about connections that it makes": (
        ("kSilence",),
        "Turnstile.LogsTheNumberOfStrangersAtIntervals",
    ),
    "consecutive encrypted records without data": (
        ("kMostEmptyRecords",),
        "SecureStream.APeerThatOnlyReplacesItsKeyIsRefused",
    ),
    "time in which nothing arrives from a peer": (
        ("liveness_interval",),
        "Liveness.ASilentPeerIsLostOnceAfterTheInterval",
    ),
}


def rows() -> dict[str, str]:
    """Returns the two columns of the tables, without their heads and rules."""
    page = (ROOT / "docs/security.md").read_text()
    section = page.partition("\n## Bounds\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
    return {row[0]: row[1] for row in cells if not row[0].startswith(("---", "resource"))}


def text_of(folder: str) -> str:
    paths = (ROOT / folder).rglob("*")
    return "\n".join(p.read_text() for p in paths if p.suffix in {".cpp", ".h"})


def test_the_tables_have_a_row_for_each_bound():
    assert list(rows()) == list(BOUNDS)


@pytest.mark.parametrize("what", BOUNDS)
def test_a_row_names_a_constant_and_a_test(what):
    constants, test = BOUNDS[what]
    source, tests = text_of("src"), text_of("tests")
    for constant in constants:
        assert re.search(rf"\b{constant}\b", source), f"{constant} is in no source"
    suite, name = test.split(".")
    assert re.search(rf"TEST(_F|_P)?\(\s*{suite},\s*{name}\)", tests), f"no test {test}"


def values_of(constant: str, source: str) -> list[list[str]]:
    """Returns, for each definition of a constant, the ways to write each of its numbers."""
    found = []
    for text in re.findall(rf"\b{constant}\b\s*(?:=|(?={{))([^;]+);", source):
        spellings = []
        for digits, shift, unit in re.findall(r"\b(\d[\d']*)\}?(?: << (\d+))?(ms|s)?", text):
            number = int(digits.replace("'", "")) << int(shift or 0)
            spellings.append(
                [f"{number:,}", f"{number / 1024:g} KiB", f"{number / 1024**2:g} MiB"]
                if not unit and "seconds" not in text
                else [f"{number} s", f"{number} ms", f"{number / 60:g} minute", "one a minute"]
            )
        # A definition by other constants has a test of its bytes.
        if not re.search(r"\bk[A-Z]\w+", text):
            found.append(spellings)
    return found


@pytest.mark.parametrize("what", BOUNDS)
def test_the_page_states_the_values_of_the_sources(what):
    said, source = rows()[what], text_of("src")
    for constant in BOUNDS[what][0]:
        definitions = values_of(constant, source)
        if definitions and definitions != [[]]:
            assert any(
                all(any(way in said for way in ways) for ways in numbers) for numbers in definitions
            ), f"{constant} is {definitions}, but the page says: {said}"
