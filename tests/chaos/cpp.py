"""Ranks in C++: compiles rank.cpp, and writes the scenarios that it reads."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import traffic
from launching import BUILD, ROOT, environment
from scenario import ABORTS, HARMLESS, OPTIONAL, Face, Fault, Scenario
from traffic import Call

import mccl.config

_HERE = Path(__file__).parent
#: The folder of the program, which goes with the process that compiled it.
_folder: tempfile.TemporaryDirectory[str] | None = None
#: Steps after that of the fault whose calls are written. Longer programs repeat them.
_MORE_STEPS = 30


def is_missing() -> bool:
    """Returns whether the compiler or the library is missing."""
    return shutil.which("c++") is None or not (BUILD / "src").is_dir()


def prepare() -> None:
    """Compiles the program, once in the campaign."""
    global _folder
    if is_missing() or _folder is not None:
        return
    _folder = tempfile.TemporaryDirectory(prefix="mccl-chaos-")
    library = (BUILD / "src").resolve()
    subprocess.run(
        ["c++", "-std=c++20", "-O1", f"-I{ROOT / 'include'}", f"-I{_HERE}", _HERE / "rank.cpp",
         "-o", program(), f"-L{library}", "-lmccl", "-lpthread", f"-Wl,-rpath,{library}"],
        check=True,
    )  # fmt: skip


def program() -> Path:
    """Returns the path of the compiled program."""
    assert _folder is not None, "prepare() compiles the program"
    return Path(_folder.name) / "rank"


def text(scenario: Scenario) -> str:
    """Returns the scenario as rank.cpp reads it."""
    ends = scenario.fault in HARMLESS | OPTIONAL
    facts = {
        "seed": scenario.seed,
        "size": scenario.size,
        "victim": -1 if scenario.fault == Fault.NONE else scenario.victim,
        "fault": _fault(scenario),
        "moment": scenario.moment.name,
        "step": scenario.step,
        "steps": scenario.steps if ends else 0,
        "delay": scenario.delay,
        "rounding": traffic.ROUNDS.get(scenario.compression, 0),
        "digests": int(scenario.compression != "none"),
        # Before MPI's ranks compare their calls, these may return anything.
        "compared": int(scenario.face != Face.MPI or scenario.fault != Fault.MISMATCH),
        "scene": scenario.scene or "none",
        "spare": scenario.spare,
        "cabled": int(scenario.cabled),
    }
    lines = [f"{name} {value}" for name, value in facts.items()]
    settings = mccl.config.texts_of(scenario.settings)
    lines += [f"setting {name} {value}" for name, value in settings.items()]
    for kind, steps in (
        ("call", range(scenario.step + _MORE_STEPS)),
        ("rest", range(1000, 1003)),
    ):
        lines += [f"{kind} {step} {_line(call)}" for step in steps for call in scenario.calls(step)]
    if scenario.fault == Fault.MISMATCH:
        (call,) = scenario.calls(scenario.step)
        other = traffic.other(call, scenario.size, scenario.difference)
        lines.append(f"other {_line(traffic.for_cpp(other))}")
    return "\n".join([*lines, ""])


def _fault(scenario: Scenario) -> str:
    if scenario.is_networked:
        return "NETWORK"
    return "ABORT" if scenario.fault in ABORTS else scenario.fault.name


def _line(call: Call) -> str:
    return f"{call.kind} {call.count} {call.dtype} {call.op} {call.root} {call.shift} {call.salt}"


def become(scenario_file: str, rank: int, say: int, hear: int, root: str) -> NoReturn:
    """Runs the program in place of this process."""
    for descriptor in (say, hear):
        os.set_inheritable(descriptor, True)
    words = [str(program()), scenario_file, str(rank), str(say), str(hear), root]
    os.execve(words[0], words, environment())
