"""The commands of a trial, from `mccl config` to jobs, each with a time limit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from launching import environment, heed_signals, program
from said import Config, Doctor, Ran, Run, Said
from trial import FATAL, UNASKABLE, Fault
from world import World

PROGRAMS = Path(__file__).parent / "programs"
#: Seconds that a host may take to describe itself, or to be ready for a job.
PATIENCE = 8
#: Jobs with more ranks train on FEW_TORCH_RANKS of them only, because each import of torch takes
#: two seconds of a core.
MOST_TORCH_RANKS = 4
FEW_TORCH_RANKS = 3
#: Seconds that a job's processes and files get to disappear before they count as left behind.
GRACE = 20
SETTINGS = (
    "MCCL_TRANSPORT=tcp",  # the hosts share a kernel, so ranks could otherwise use shared memory
    "MCCL_CONNECT_TIMEOUT=12",
    "OMP_NUM_THREADS=1",
)


def run_trial(world: World) -> Said:
    return Steps(world).run()


class Steps:
    """The commands of one trial, which run on the desk host of its world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.trial = world.trial
        self.said = Said()
        self.planted = False

    def run(self) -> Said:
        trial = self.trial
        if trial.early:
            self.plant()
        names, file = trial.names, self.configure(trial.names)
        if self.planted and trial.fault in UNASKABLE:
            names, file = trial.healthy, self.configure(trial.healthy, without=trial.victim)
        self.plant()
        self.examine(file if names == trial.names else None)
        if file and trial.victim in names and trial.fault in FATAL:
            self.launch("torch", names, "--hostfile", file)
            names, file = trial.healthy, self.configure(trial.healthy)
        elif trial.fault in FATAL and not (trial.apart and trial.fault == Fault.NO_MCCL):
            # Ranks without a common network need a hostfile to meet.
            self.launch("mlx", trial.names, "--hosts", ",".join(trial.names))
        if file:
            self.run_jobs(names, file)
        self.said.left_behind = self._left_behind()
        return self.said

    def plant(self) -> None:
        if not self.planted:
            self.world.plant()
        self.planted = True

    def configure(self, names: tuple[str, ...], without: str = "") -> Path | None:
        """Runs `mccl config` and returns the hostfile, or None if it wrote none.

        The host `without` is asked as well, and may fail to answer.
        """
        file = self.world.folder / f"hosts{len(self.said.configs)}.json"
        asked = sorted({*names, without} - {""})
        words = ["--hosts", ",".join(asked), "--output", file, "--json", "--auto-setup", "--yes"]
        words += ["--over", self.trial.over] if self.trial.over else []
        words += ["--ignore-unreachable"] if without else []
        ran = self._run("config", *words, "--patience", PATIENCE, bound=40 + 3 * len(names))
        self.said.configs.append(Config(ran, names, self.planted, file.exists()))
        return file if file.exists() else None

    def examine(self, file: Path | None) -> None:
        """Runs `mccl doctor` on the hosts of the hostfile, or on all hosts if there is none."""
        names = self.trial.names
        which = ("--hostfile", file) if file else ("--hosts", ",".join(names))
        bound = 40 + 8 * len(names)
        ran = self._run("doctor", *which, "--json", "--patience", PATIENCE, bound=bound)
        addressed = frozenset(self.world.addressed_cables())
        self.said.doctors.append(Doctor(ran, names, addressed))

    def run_jobs(self, names: tuple[str, ...], file: Path) -> None:
        """Launches a sum with MLX and a training step with torch's DDP."""
        self.launch("mlx", names, "--hostfile", file)
        if len(names) > MOST_TORCH_RANKS:
            names = self._some_neighbours(names)
            file = self.configure(names)
        if file:
            self.launch("torch", names, "--hostfile", file)

    def _some_neighbours(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Returns a few hosts that cables join with each other, as far as there are cables."""
        chosen = {names[0]}
        while len(chosen) < FEW_TORCH_RANKS:
            ends = {name for cable in self.trial.cables if chosen & set(cable) for name in cable}
            chosen.add(min(ends & set(names) - chosen or set(names) - chosen))
        return tuple(sorted(chosen))

    def launch(self, kind: str, names: tuple[str, ...], *which: object) -> None:
        script = ["--mlx", PROGRAMS / "all_sum.py"] if kind == "mlx" else [PROGRAMS / "ddp_step.py"]
        if "--hostfile" in which:
            names = tuple(each["ssh"] for each in json.loads(which[1].read_text())["hosts"])
        ran = self._run(
            "launch", *which, "--no-prefix", "--patience", PATIENCE, "--python", sys.executable,
            *(word for setting in SETTINGS for word in ("--env", setting)), *script,
            bound=50 + 4 * len(names),
        )  # fmt: skip
        self.said.runs.append(Run(ran, names, kind))

    def _run(self, command: str, *words: object, bound: float) -> Ran:
        began = time.monotonic()
        ssh = ("-F", self.world.config, "-o", "ConnectTimeout=5")
        running = subprocess.Popen(
            [*self.world.on("desk", program(), command), *(f"--ssh-arg={each}" for each in ssh),
             *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(TMPDIR=str(self.world.temporary("desk"))), preexec_fn=heed_signals,
            start_new_session=True, cwd=self.world.folder,
        )  # fmt: skip
        try:
            stdout, stderr = running.communicate(timeout=bound)
            status = running.returncode
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            stdout, stderr = running.communicate()
            status = None
        return Ran(command, status, stdout, stderr, time.monotonic() - began)

    def _left_behind(self) -> list[str]:
        """Returns what is left behind after the grace period."""
        deadline = time.monotonic() + GRACE
        while (left := self.world.left_behind()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left
