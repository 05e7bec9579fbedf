"""A live view of running jobs in a terminal: ``mccl top``.

It shows what ``mccl status --json --follow`` prints: a row for each rank, or for each link. Rates
are computed from the counters of two refreshes. Needs the package ``textual``
(``pip install 'mccl-engine[top]'``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 24
STYLES = {"healthy": "green", "stuck": "yellow", "failed": "red"}
ORDERS = ("rank", "calls/s", "waits")


def amount(number: float) -> str:
    """Returns the number with a decimal unit, such as "12.3k"."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}P"


def bars(values: deque[float]) -> str:
    """Returns one block per value; the largest value is a full block."""
    top = max(values, default=0) or 1
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values)


@dataclass
class Link:
    """A link from one rank to another. Rates are in bytes per second."""

    rank: int
    peer: int
    transport: str
    state: str
    sent: float = 0
    received: float = 0


@dataclass
class Rank:
    """A row of the table. ``waits_s`` is the longest time without progress, in seconds."""

    rank: int
    host: str
    pid: int
    job: str = ""
    calls: int = 0
    calls_per_s: float = 0
    sent: float = 0
    received: float = 0
    errors: int = 0
    group: str = ""
    call: str = ""
    waits: str = ""
    waits_s: float = 0
    trouble: str = ""
    links: list[Link] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Returns "failed", "stuck", or an empty string for a healthy rank."""
        return "failed" if self.trouble.startswith("group") else "stuck" if self.trouble else ""


class View:
    """The last refresh, and the rates since the refresh before it. Used by one thread."""

    def __init__(self) -> None:
        self.health = "healthy"
        self.findings: list[str] = []
        self.ranks: list[Rank] = []
        self.history: dict[tuple, deque[float]] = defaultdict(lambda: deque(maxlen=HISTORY))
        self._counts: dict[tuple, tuple[float, float]] = {}

    def _rate(self, key: tuple, count: float, now: float) -> float:
        """Returns by how much the count has grown per second since the last refresh."""
        then, before = self._counts.get(key, (now, count))
        self._counts[key] = now, count
        # A count starts at 0 again if another job takes the place of one that has ended.
        return max(0.0, count - before) / (now - then) if now > then else 0.0

    def refresh(self, status: dict[str, Any], now: float) -> None:
        """Applies one line of ``mccl status --json --follow``; ``now`` is in seconds."""
        self.health = status["health"]
        self.findings = status["findings"]
        self.ranks = [self._rank(report, now) for report in status["ranks"]]

    def _rank(self, report: dict[str, Any], now: float) -> Rank:
        row = Rank(report["rank"], report.get("host", ""), report.get("pid", 0))
        row.job = report.get("job", "")
        row.trouble = report.get("error", "")
        if row.trouble:
            return row
        row.job = report["job"]
        key = (row.job, row.rank)
        row.calls, row.errors = report["calls"], report["errors"]
        row.calls_per_s = self._rate((*key, "calls"), row.calls, now)
        row.sent = self._rate((*key, "sent"), report["bytes_sent"], now)
        row.received = self._rate((*key, "received"), report["bytes_received"], now)
        self.history[key].append(row.calls_per_s)
        if not report["answers"]:
            row.trouble = "a callback blocks its calls"
        for group in report["groups"]:
            if group["failure"]:
                row.trouble = f"group {group['name']} has failed: {group['failure']}"
            for call in group["pending"]:
                if call["waited_s"] < row.waits_s and row.call:
                    continue
                row.group, row.call, row.waits_s = group["name"], call["call"], call["waited_s"]
                awaited = ", ".join(str(group["members"][member]) for member in call["waits_for"])
                row.waits = f"{row.waits_s:.1f} s" + (f" for rank {awaited}" if awaited else "")
        for peer in report["peers"]:
            link = Link(row.rank, peer["rank"], peer["transport"], peer["state"])
            link.sent = self._rate((*key, peer["rank"], "sent"), peer["bytes_sent"], now)
            link.received = self._rate((*key, peer["rank"], "in"), peer["bytes_received"], now)
            row.links.append(link)
        return row

    def jobs(self) -> list[str]:
        """Returns the names of the jobs to which the ranks belong, sorted."""
        return sorted({rank.job for rank in self.ranks})

    def title(self) -> str:
        """Returns the health, the number of ranks and their job."""
        jobs = self.jobs()
        of = f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs"
        return f"{self.health}: {len(self.ranks)} ranks of {of}"

    def sorted_ranks(self, order: str, words: str) -> list[Rank]:
        """Returns the ranks that match every word of the filter, in the order of a column."""
        shown = [rank for rank in self.ranks if _matches(rank, words)]
        keys = {
            "rank": lambda rank: (rank.job, rank.rank),
            "calls/s": lambda rank: -rank.calls_per_s,
            "waits": lambda rank: (not rank.trouble, -rank.waits_s),
        }
        return sorted(shown, key=keys[order])


def _matches(rank: Rank, words: str) -> bool:
    texts = (rank.host, rank.group, rank.call, rank.trouble)
    text = f"job {rank.job} rank {rank.rank} {rank.pid} {' '.join(texts)}".lower()
    return all(word in text for word in words.lower().split())


#: The job, the style and the cells of a row.
Row = tuple[str, str, list[str]]


def rank_rows(view: View, ranks: list[Rank]) -> tuple[str, list[Row]]:
    """Returns the names of the columns, and a row for each rank."""
    names = "rank host process calls/s sent/s received/s history group call waits"
    rows = []
    for rank in ranks:
        cells = [
            str(rank.rank),
            rank.host,
            str(rank.pid or ""),
            amount(rank.calls_per_s),
            amount(rank.sent) + "B",
            amount(rank.received) + "B",
            bars(view.history[rank.job, rank.rank]),
            rank.group,
            rank.trouble or rank.call or "in no call",
            rank.waits,
        ]
        rows.append((rank.job, STYLES.get(rank.state, ""), cells))
    return names, rows


def link_rows(ranks: list[Rank]) -> tuple[str, list[Row]]:
    """Returns the names of the columns, and a row for each link."""
    rows = []
    for rank in ranks:
        for link in rank.links:
            style = "" if link.state in ("connected", "left") else "red"
            rates = amount(link.sent) + "B", amount(link.received) + "B"
            cells = [str(link.rank), str(link.peer), link.transport, *rates, link.state]
            rows.append((rank.job, style, cells))
    return "rank peer transport sent/s received/s state", rows


class Top(App[int]):
    """The screen: health and findings, then a table of ranks or of links."""

    CSS = """
    #health { height: auto; max-height: 8; padding: 0 1; }
    #filter { display: none; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS = (
        Binding("s", "sort", "Sort"),
        Binding("f", "filter", "Filter"),
        Binding("l", "links", "Links"),
        Binding("d", "dump", "Dump"),
        Binding("escape", "no_filter", show=False),
        Binding("q", "quit", "Quit"),
    )
    TITLE = "mccl top"

    def __init__(self, program: str, pid: str, seconds: float) -> None:
        super().__init__()
        self.view = View()
        self.order = ORDERS[0]
        self.shows_links = False
        self.words = ""
        self._program = program
        self._command = ["status", "--json", "--follow", str(seconds), *([pid] if pid else [])]

    def compose(self) -> ComposeResult:
        """Yields the parts of the screen, from top to bottom."""
        with VerticalScroll(id="health"):
            yield Static("waiting for the first status", id="findings")
        yield Input(placeholder="words that a rank's row must contain", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Starts to follow the jobs."""
        self.query_one(DataTable).focus()
        self.follow()

    @work
    async def follow(self) -> None:
        """Draws each line that ``mccl status`` prints, until the jobs end."""
        status = await asyncio.create_subprocess_exec(
            self._program,
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 28,
        )
        try:
            error = None
            while (line := await status.stdout.readline()) and not error:
                if not line.rstrip().endswith(b"}"):  # only an error takes several lines
                    line += await status.stdout.read()
                shown = json.loads(line)
                error = shown.get("error")
                if not error:
                    self.view.refresh(shown, time.monotonic())
                    self.draw()
            self.exit(2 if error else 0, message=f"mccl top: {error or 'the jobs have ended'}")
        finally:
            if status.returncode is None:
                status.terminate()
                await status.wait()

    def draw(self) -> None:
        """Draws the last refresh, and keeps the selected row."""
        view = self.view
        text = Text(view.title(), style=STYLES[view.health])
        text.append(f"   sorted by {self.order}", style="dim")
        for finding in view.findings:
            text.append(f"\n{finding}", style="")
        self.query_one("#findings", Static).update(text)
        table = self.query_one(DataTable)
        row = table.cursor_row
        table.clear(columns=True)
        ranks = view.sorted_ranks(self.order, self.words)
        names, rows = link_rows(ranks) if self.shows_links else rank_rows(view, ranks)
        shows_jobs = len(view.jobs()) > 1
        table.add_columns(*(["job"] if shows_jobs else []), *names.split())
        for job, style, cells in rows:
            shown = [job, *cells] if shows_jobs else cells
            table.add_row(*(Text(cell, style=style) for cell in shown))
        if table.row_count:
            table.move_cursor(row=min(row, table.row_count - 1))

    def action_sort(self) -> None:
        """Sorts by the next entry of ORDERS."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.draw()

    def action_links(self) -> None:
        """Switches between the table of ranks and the table of links."""
        self.shows_links = not self.shows_links
        self.draw()

    def action_filter(self) -> None:
        """Lets the user edit the filter."""
        self.query_one("#filter").add_class("shown")
        self.query_one("#filter").focus()

    def action_no_filter(self) -> None:
        """Removes the filter."""
        self.query_one("#filter", Input).value = ""
        self.query_one("#filter").remove_class("shown")
        self.query_one(DataTable).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Applies the filter while the user types."""
        self.words = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        """Returns to the table."""
        self.query_one(DataTable).focus()

    @work
    async def action_dump(self) -> None:
        """Writes the flight record of the selected rank to a file in the working directory."""
        ranks = self.view.sorted_ranks(self.order, self.words)
        row = self.query_one(DataTable).cursor_row
        if self.shows_links or row >= len(ranks):
            self.notify("select a rank first", severity="warning")
            return
        rank = ranks[row]
        if rank.trouble or rank.host != socket.gethostname():
            self.notify(
                "the flight record of a rank can be written only if the rank answers and runs on "
                "this host",
                severity="warning",
            )
            return
        file = f"mccl-{rank.host}-{rank.rank}.json"
        dump = await asyncio.create_subprocess_exec(
            self._program,
            *("dump", str(rank.pid), "--rank", str(rank.rank), "-o", file),
            stderr=asyncio.subprocess.PIPE,
        )
        _, error = await dump.communicate()
        if dump.returncode == 0:
            self.notify(f"the flight record of rank {rank.rank} is in {file}")
        else:
            message = error.decode(errors="replace").strip()
            self.notify(message, severity="error", markup=False)


def main() -> int:
    """Entry point of ``mccl top``, which passes the path of the program."""
    parser = argparse.ArgumentParser(prog="python -m mccl.top", description=__doc__)
    parser.add_argument("--program", default="mccl", help="the program mccl")
    parser.add_argument("--seconds", type=float, default=1, help="time between refreshes")
    parser.add_argument("pid", nargs="?", default="", help="process id of a rank on this host")
    arguments = parser.parse_args()
    app = Top(arguments.program, arguments.pid, arguments.seconds)
    code = app.run()
    return code if code is not None else 0


if __name__ == "__main__":
    sys.exit(main())
