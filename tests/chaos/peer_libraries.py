"""The same faults in jobs of MCCL, Gloo, MLX's ring and Open MPI: a table of their outcomes.

Each trial starts three ranks that sum 64 KiB again and again, commits one fault, and waits until
every living rank has an outcome. A cell states the outcomes of these ranks:
  error within N s  a call raises an error; N is the slowest of all ranks and trials
  names the rank    its text has the number of the rank at fault
  ended within N s  the launcher ends the rank
  crash (SIGNAL)    the process ends by a signal; no program can catch it
  hang              no call returns within 40 s
  go on             the calls continue, with right results
  wrong result      a call returns other bytes than it should
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import numpy as np
from assess import names
from free_port import free_port
from hosts import Hosts, reset_between
from peer_rank import FACTS, SIZE, VICTIM

EXAMPLES = """\
examples:
  make chaos-peers                                 each trial five times, about 20 minutes
  make chaos-peers CHAOS="--trials 1 --systems gloo mlx --faults kill"
  make chaos-peers CHAOS="--record trials.jsonl"   keep the text of every error

MCCL runs over TCP and shared memory, Open MPI over TCP. MCCL's liveness interval is 3 s, but 10 s
for a rank that is stopped for 3 s. A cell that cannot be tried has a dash; faults of hosts need
root. The exit status is 0 if MCCL neither hangs, crashes nor returns a wrong result, otherwise 1.
"""
#: Seconds after which a rank hangs, from the start and from the fault. For QUIET seconds after the
#: fault, no other trial runs, which would delay errors.
START, PATIENCE, QUIET = 60.0, 40.0, 5.0
#: Trials at a time, all but one of which wait for the end of a hang.
AT_ONCE = 4
#: Number of further calls after which a rank goes on.
CALLS = 20
MPIRUN = (
    *("mpirun.openmpi", "-n", str(SIZE), "--oversubscribe", "--bind-to", "none", "--mca", "pml"),
    *("ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"),
    *("--mca", "mpi_yield_when_idle", "1", sys.executable, "-m", "mpi4py"),
)
FAULTS = {
    "kill": "A rank is killed",
    "receive": "A rank is killed while others receive from it",
    "exit": "A rank exits without goodbye",
    "stop": "A rank is stopped",
    "pause": "A rank is stopped for 3 s",
    "reset": "Connections between hosts are reset",
    "reset-inside": "Connections inside a host are reset",
    "cut": "A host's network is cut",
    "mismatch": "A rank passes another size",
    "late": "A rank does not make a call (timeout 10 s)",
}
#: Faults after which no rank is dead or silent, so that each has an outcome.
ALL_LIVE = ("pause", "reset", "reset-inside", "mismatch")
#: Faults of hosts, which are network namespaces, and the systems that can run on several. Shared
#: memory does not join hosts, and mpirun would need ssh.
HOSTS, ON_HOSTS = ("reset", "cut"), ("mccl-tcp", "gloo", "mlx")
#: Each system's column, the module that it needs, and the variables of its ranks.
SYSTEMS = {
    "mccl-tcp": ("MCCL", "mccl", {"MCCL_TRANSPORT": "tcp"}),
    "mccl-shm": ("MCCL", "mccl", {"MCCL_TRANSPORT": "shm"}),
    "gloo": ("Gloo", "torch", {"GLOO_SOCKET_IFNAME": "lo"}),
    "mlx": ("MLX's ring", "mlx", {}),
    "openmpi": ("Open MPI", "mpi4py", {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "MPI4PY_MPIABI": "openmpi",
    }),
}  # fmt: skip
#: Outcomes of MCCL that are defects.
DEFECTS = ("hang", "crash", "wrong result", "no start")


def is_missing(system: str) -> bool:
    program = MPIRUN[0] if system == "openmpi" else sys.executable
    return find_spec(SYSTEMS[system][1]) is None or shutil.which(program) is None


@dataclass(frozen=True)
class Outcome:
    """How a fault has ended for one rank."""

    kind: str
    rank: int = 0
    seconds: float | None = None
    names: bool = False  # the text names the rank at fault
    text: str = ""


class Job:
    """The ranks of one trial."""

    def __init__(self, system: str, fault: str, folder: Path, hosts: Hosts | None) -> None:
        self.system, self.fault, self.folder, self.hosts = system, fault, folder, hosts
        (folder / "facts").write_bytes(bytes(SIZE * FACTS.itemsize))
        self.facts = np.memmap(folder / "facts", FACTS, "r+")
        self.processes: list[subprocess.Popen[str]] = []
        self.struck = 0.0  # time of the fault

    def start(self) -> str:
        """Waits until the ranks are in the midst of their calls. Returns why they are not."""
        addresses = [self.hosts.address(r) if self.hosts else "127.0.0.1" for r in range(SIZE)]
        hostfile = self.folder / "hosts.json"
        hostfile.write_text(json.dumps([[f"{address}:{free_port()}"] for address in addresses]))
        program, name = Path(__file__).with_name("peer_rank.py"), self.system.split("-")[0]
        words = [program, name, self.fault, self.folder, f"{addresses[0]}:{free_port()}"]
        command = [*(MPIRUN if name == "openmpi" else [sys.executable]), *words]
        env = {name: text for name, text in os.environ.items() if not name.startswith("MCCL_")}
        env |= SYSTEMS[self.system][2] | {"OMP_NUM_THREADS": "1"}
        env |= {"MCCL_LIVENESS_INTERVAL": "10" if self.fault == "pause" else "3"}
        env |= {"GLOO_SOCKET_IFNAME": "cable", "MCCL_JOB_KEY": "0" * 64} if self.hosts else {}
        for rank in range(1 if self.system == "openmpi" else SIZE):
            env |= {"PEER_RANK": str(rank), "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hostfile)}
            enter = partial(self.hosts.enter, rank) if self.hosts else None
            with open(self.folder / f"{rank}.log", "w") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                process = subprocess.Popen(command, env=env, preexec_fn=enter, **streams)
            self.processes.append(process)
        end = time.monotonic() + START
        while (self.facts["calls"] < (1 if self.fault == "receive" else CALLS)).any():
            if time.monotonic() > end or any(p.poll() is not None for p in self.processes):
                return "".join(log.read_text()[-2000:] for log in self.folder.glob("*.log"))
            time.sleep(0.01)
        time.sleep(0.3)
        return ""

    def strike(self) -> bool:
        """Commits the fault. Returns False if it is impossible."""
        fault, victim = self.fault, int(self.facts[VICTIM]["pid"])
        self.struck = time.monotonic()
        if fault in ("kill", "receive"):
            os.kill(victim, signal.SIGKILL)
        elif fault in ("stop", "pause"):
            os.kill(victim, signal.SIGSTOP)
        elif fault == "reset-inside":
            return reset_between(int(self.facts[0]["pid"]), victim)
        elif self.hosts:
            (self.hosts.cut if fault == "cut" else self.hosts.reset)(VICTIM)
        else:
            self.facts[VICTIM]["go"] = 1
        if fault == "pause":
            time.sleep(3)
            os.kill(victim, signal.SIGCONT)
        return True

    def watch(self, quiet: ExitStack) -> list[Outcome]:
        """Waits for the outcome of every rank, and lets other trials run if that takes long."""
        ranks = [rank for rank in range(SIZE) if rank != VICTIM or self.fault in ALL_LIVE]
        begin, before, on = time.monotonic(), None, []
        while True:
            found = {rank: self.outcome(rank) for rank in ranks}
            seconds = time.monotonic() - begin
            if seconds > 1 and before is None:
                before = self.facts["calls"].copy()
            if before is not None:
                on = [rank for rank in ranks if self.facts["calls"][rank] > before[rank] + CALLS]
            if seconds > PATIENCE or all(found[rank] or rank in on for rank in ranks):
                rest = {r: Outcome("go on" if r in on else "hang", r) for r in ranks}
                return [found[rank] or rest[rank] for rank in ranks]
            if seconds > QUIET:
                quiet.close()
                for pid in self.facts["pid"]:  # ranks that hang may spin
                    with suppress(OSError):
                        for thread in os.listdir(f"/proc/{pid}/task"):
                            os.setpriority(os.PRIO_PROCESS, int(thread), 19)
            time.sleep(0.005 if seconds < QUIET else 0.1)

    def outcome(self, rank: int) -> Outcome | None:
        """Returns how the fault has ended for the rank, or None if it has not."""
        fact = self.facts[rank]
        at = float(self.facts[VICTIM]["fault"] or self.struck)
        if fact["wrong"]:
            return Outcome("wrong result", rank)
        if fact["error"]:
            text = (self.folder / f"{rank}.error").read_text()
            return Outcome(
                "error", rank, float(fact["error"] - at), self.is_named(rank, text), text
            )
        number = rank % len(self.processes)
        if (code := self.processes[number].poll()) is None:
            return None
        kind = f"crash ({signal.Signals(-code).name})" if code < 0 else "exit"
        kind = "ended" if self.system == "openmpi" else kind
        text = (self.folder / f"{number}.log").read_text(errors="replace")
        return Outcome(kind, rank, time.monotonic() - at, self.is_named(rank, text), text)

    def is_named(self, rank: int, text: str) -> bool:
        """Returns whether a text that the rank has got names a rank that is at fault."""
        ends = {0, VICTIM} if self.fault == "reset-inside" else {VICTIM}
        others = set(range(SIZE)) - {rank}
        guilty = (others & ends) or others
        text = re.sub(r"Process name: \[\[\d+,\d+\],(\d+)\]", r"rank \1", text)  # mpirun's
        gone = set(map(int, re.findall(r"\brank (\d+) is gone", text)))
        return gone <= guilty and any(names(text, each) for each in guilty)

    def end(self) -> None:
        for process in self.processes:
            # mpirun must end its ranks itself.
            process.terminate() if self.system == "openmpi" else process.kill()
        for process in self.processes:
            process.wait()


def run(system: str, fault: str, turn: threading.Lock) -> list[Outcome]:
    """Runs one trial. Returns an outcome for each rank, or none if the fault is impossible."""
    with ExitStack() as stack, ExitStack() as quiet:
        quiet.enter_context(turn)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = stack.enter_context(closing(Hosts(SIZE))) if fault in HOSTS else None
        job = Job(system, fault, folder, hosts)
        stack.callback(job.end)
        if text := job.start():
            return [Outcome("no start", text=text)]
        return job.watch(quiet) if job.strike() else []


def cell(outcomes: list[Outcome]) -> str:
    """Returns the outcomes in words."""
    texts = []
    for kind, number in Counter(outcome.kind for outcome in outcomes).most_common():
        same = [outcome for outcome in outcomes if outcome.kind == kind]
        text = kind + (f" ({number} of {len(outcomes)})" if number < len(outcomes) else "")
        if same[0].seconds is not None:
            text += f" within {max(outcome.seconds or 0 for outcome in same):.2g} s"
        if kind in ("error", "ended"):
            named = sum(outcome.names for outcome in same)
            share = f" ({named} of {number})" if named < number else ""
            text += f", names the rank{share}" if named else ", names no rank"
        texts.append(text)
    return "; ".join(texts) or "—"


def table(results: dict[tuple[str, str], list[Outcome]]) -> str:
    """Returns a row for each fault, and a column for each title."""
    titles = list(dict.fromkeys(SYSTEMS[system][0] for system, _ in results))
    lines = [["", *titles], ["---"] * (len(titles) + 1)]
    for fault in dict.fromkeys(fault for _, fault in results):
        found: dict[str, list[Outcome]] = {title: [] for title in titles}
        for system, (title, *_) in SYSTEMS.items():
            found.get(title, []).extend(results.get((system, fault), []))
        lines.append([FAULTS[fault], *map(cell, found.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--trials", type=int, default=5, metavar="N", help="number of trials per cell (5)")
    for name, known in (("systems", SYSTEMS), ("faults", FAULTS)):
        words = {"nargs": "+", "choices": known, "default": list(known), "metavar": "NAME"}
        add(f"--{name}", **words, help=f"only these, separated by blanks: {', '.join(known)}")
    add("--record", default=os.devnull, metavar="FILE", help="write a line of JSON per trial")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    has_hosts = not Hosts.missing()
    trials = [
        (system, fault)
        for fault in asked.faults
        for system in asked.systems
        if not is_missing(system) and (fault not in HOSTS or (system in ON_HOSTS and has_hosts))
    ]
    turn, results = threading.Lock(), {trial: [] for trial in trials}
    with open(asked.record, "w") as record, ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [(trial, pool.submit(run, *trial, turn)) for trial in trials * asked.trials]
        for trial, future in futures:
            results[trial] += future.result()
            print(json.dumps([*trial, *map(asdict, future.result())]), file=record, flush=True)
    print(table(results))
    ours = [o.kind for (system, _), found in results.items() if "mccl" in system for o in found]
    sys.exit(any(kind.startswith(DEFECTS) for kind in ours))


if __name__ == "__main__":
    main()
