"""Formats tables of times and ratios, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from comparison.contestants import CONTESTANTS, PEERS_ALL
from comparison.machine import CALL, LINE, PASS, SOCKETS, TITLES
from comparison.results import Key, Results
from comparison.sizes import show_size
from peers.cells import Cell

NOTHING = "-"

# Each entry: a contestant of MCCL, the contestants of which the fastest is its reference, and the
# title of the ratio.
RATIOS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("mccl", PEERS_ALL, "C++ / fastest peer"),
    ("mccl-torch", ("gloo",), "torch / Gloo"),
    ("mccl-mlx", ("mlx",), "MLX / its ring"),
    ("mccl-numpy", ("mccl",), "NumPy / C++"),
    ("mccl-mpi", ("openmpi",), "MPI backend / Open MPI"),
    ("mccl-tcp", ("openmpi-tcp",), "TCP / Open MPI's TCP"),
    ("mccl-tcp", ("gloo",), "TCP / Gloo"),
    ("mccl-mlx-tcp", ("mlx",), "MLX on TCP / its ring"),
    ("mccl", (PASS,), "C++ / one pass"),
    ("mccl-tcp", (SOCKETS,), "TCP / raw sockets"),
    ("mccl-tcp", (LINE,), "TCP / line"),
    ("mccl-mpi", (CALL,), "MPI backend / MPI's call"),
)


def title_of(name: str) -> str:
    """Returns the title of a contestant or of a bound of the machine."""
    return CONTESTANTS[name].title if name in CONTESTANTS else TITLES.get(name, name)


@dataclass
class Table:
    """Text in rows. The first column is left-aligned; others are right-aligned if numeric."""

    title: str
    headers: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    numbers: bool = True

    def text(self) -> str:
        """Formats the table with aligned columns for a terminal."""
        lines = [list(self.headers), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headers))]
        out = [self.title] if self.title else []
        for line in lines:
            cells = [
                text.ljust(width) if index == 0 else text.rjust(width)
                for index, (text, width) in enumerate(zip(line, widths, strict=True))
            ]
            out.append("  ".join(cells).rstrip())
        return "\n".join(out)

    def markdown(self) -> str:
        """Formats the table as GitHub Markdown."""
        rule = "|---|" + ("---:|" if self.numbers else "---|") * (len(self.headers) - 1)
        lines = ["| " + " | ".join(line) + " |" for line in [list(self.headers), *self.rows]]
        title = [f"**{self.title}**", ""] if self.title else []
        return "\n".join([*title, lines[0], rule, *lines[1:]])


def show_time(microseconds: float | None) -> str:
    """Formats a time with about three significant digits."""
    if microseconds is None:
        return NOTHING
    if microseconds < 100:
        return f"{microseconds:.2f}" if microseconds < 10 else f"{microseconds:.1f}"
    return f"{microseconds:,.0f}"


def show_ratio(ratio: float | None) -> str:
    """Formats a ratio. Below 0.1 it has three decimals, which such bounds need."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def ratio_of(
    results: Results, contestant: str, against: Iterable[str], ranks: int, cell: Cell
) -> tuple[float, str] | None:
    """Returns the contestant's time divided by that of the fastest of `against`, and its name."""
    time = results.time_us(contestant, ranks, cell)
    best = results.fastest(against, ranks, cell)
    return (time / best[0], best[1]) if time is not None and best is not None else None


def table_of(results: Results, ranks: int, collective: str, sizes: Sequence[int]) -> Table:
    """Makes the table of one collective: each contestant's median time, and the ratios."""
    cells = [Cell(collective, size) for size in sizes]
    names = [
        name
        for name in (*CONTESTANTS, *TITLES)
        if any(Key(name, ranks, cell) in results.rows for cell in cells)
    ]
    ratios = [
        (contestant, against, title)
        for contestant, against, title in RATIOS
        if any(ratio_of(results, contestant, against, ranks, cell) for cell in cells)
    ]
    headers = ["size", *map(title_of, names), *(r[2] for r in ratios)]
    table = Table(f"{collective}, {ranks} ranks, microseconds", headers)
    for cell in cells:
        line = [show_size(cell.bytes) if cell.bytes else "none"]
        line += [show_time(results.time_us(name, ranks, cell)) for name in names]
        for contestant, against, _ in ratios:
            ratio = ratio_of(results, contestant, against, ranks, cell)
            text = show_ratio(ratio[0] if ratio else None)
            line.append(f"{text} {ratio[1]}" if ratio and len(against) > 1 else text)
        table.rows.append(line)
    return table


def tables_of(results: Results) -> list[Table]:
    """Makes the tables of every collective and number of ranks."""
    return [
        table_of(results, ranks, collective, sizes)
        for ranks in results.ranks()
        for collective, sizes in results.cells(ranks).items()
    ]


def notes_of(results: Results) -> list[str]:
    """Lists the reasons for missing figures: one line per contestant, ranks and reason."""
    missing: dict[tuple[str, int, str], dict[str, list[int]]] = {}
    for key, row in results.rows.items():
        if row.absent is not None:
            sizes = missing.setdefault((key.contestant, key.ranks, row.absent), {})
            sizes.setdefault(key.cell.collective, []).append(key.cell.bytes)
    lines = []
    for (contestant, ranks, reason), collectives in missing.items():
        cells = "; ".join(
            name if sizes == [0] else f"{name} {', '.join(show_size(s) for s in sorted(sizes))}"
            for name, sizes in collectives.items()
        )
        lines.append(f"{title_of(contestant)}, {ranks} ranks: {reason} ({cells})")
    return [*lines, *results.about.get("notes", [])]
