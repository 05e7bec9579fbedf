"""The hosts of a trial, in network namespaces, and the fault of one of them."""

import os
import sys
from pathlib import Path

from cabled_hosts import CabledHosts, write_odd_probe
from launching import ROOT, program
from ssh_hosts import shell
from trial import Fault, Trial

#: The ports of a job, as docs/machines/index.md and docs/machines/launch.md list them.
JOB_PORTS = 'iifname != "lo" tcp dport { 29500, 29600-29700, 32321-32400 }'
#: torch creates this in the folder of temporary files and never removes it.
FILES_OF_TORCH = frozenset({"torchinductor_root"})
CALL_PORT = "udp dport 29599"
OTHER_BUILD = """
def answered(answer):
    if "protocol" in answer: answer["protocol"] += 1
    return [answer]
"""
OTHER_VERSION = """
def answered(answer):
    if "told" in answer: answer["told"]["versions"]["mccl"] = "0.0.7"
    return [answer]
"""
SLOWLY = """
time.sleep(2)
def asked(request):
    time.sleep(0.3)
    return request
"""


class World(CabledHosts):
    """The hosts of a trial. Each has its own home and temporary folder below `folder`."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.programs: dict[str, Path] = {}
        super().__init__(len(trial.names), list(trial.cables), trial.apart)
        self.temporary("desk").mkdir()
        if trial.addressed:
            self.give_addresses()

    def temporary(self, name: str) -> Path:
        return self.folder / f"tmp-{name}"

    def home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    def variables(self, name: str) -> dict[str, str]:
        own = {"HOME": str(self.home(name)), "TMPDIR": str(self.temporary(name))}
        if name in self.programs:
            own["PATH"] = f"{self.programs[name]}:{os.environ['PATH']}"
        return own

    def serve(self, name: str) -> None:
        for folder in (self.home(name), self.temporary(name)):
            folder.mkdir(exist_ok=True)
        super().serve(name)

    def plant(self) -> None:
        """Makes the victim faulty from now on."""
        victim = self.trial.victim
        match self.trial.fault:
            case Fault.NONE:
                pass
            case Fault.DOWN:
                self._turn_off(victim)
            case Fault.NO_MCCL:
                self._hide_mccl(victim)
            case Fault.OTHER_BUILD:
                self._replace_probe(victim, OTHER_BUILD)
            case Fault.OTHER_VERSION:
                self._replace_probe(victim, OTHER_VERSION)
            case Fault.SLOW_HOST:
                self._replace_probe(victim, SLOWLY)
            case Fault.SLOW_LINK:
                self._slow_down(victim, self.trial.interface)
            case Fault.HANGING:
                self._write_bashrc(victim, "sleep 71235.5\n")
            case Fault.CLOSED_PORTS:
                verdict = "drop" if self.trial.seed % 2 else "reject with tcp reset"
                self._drop(victim, f"{JOB_PORTS} {verdict}")
            case Fault.CLOSED_CALLS:
                self._drop(victim, f"{CALL_PORT} drop")
            case Fault.NOISY:
                self._write_bashrc(victim, "echo Welcome; printf 'no line end, '\n")

    def _write_bashrc(self, name: str, text: str) -> None:
        (self.home(name) / ".bashrc").write_text(text)

    def _turn_off(self, name: str) -> None:
        self.pull(name)
        for number, ends in enumerate(self.cables):
            if name in ends:
                self.ip(name, "link", "set", f"c{number}", "down")

    def _hide_mccl(self, name: str) -> None:
        """Hides both the program and the Python package from the host."""
        empty = self.folder / "empty"
        empty.mkdir()
        programs = {program().resolve(), Path(sys.executable).parent / "mccl"}
        hide = [f"mount --bind /dev/null {path}" for path in programs if path.is_file()]
        hide += [f"mount --bind {empty} {ROOT}/python/{each}" for each in ("mccl", "mccl_engine")]
        script = "; ".join([*hide, 'exec "$@"'])
        self.before_sshd[name] = ("unshare", "--mount", "sh", "-c", script, "-")
        self.serve_again(name)

    def _replace_probe(self, name: str, changes: str) -> None:
        self.programs[name] = self.folder / f"bin-{name}"
        self.programs[name].mkdir()
        write_odd_probe(self.programs[name], changes)
        self.serve_again(name)

    def _slow_down(self, name: str, interface: str) -> None:
        self._must(
            *self.on(name, "tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", "20mbit",
                     "burst", "32k", "latency", "50ms")
        )  # fmt: skip

    def _drop(self, name: str, rule: str) -> None:
        rules = "table inet filter {\nchain input {\ntype filter hook input priority 0;\n"
        self._must(*self.on(name, "nft", f"{rules}{rule}\n}}\n}}"))

    def addressed_cables(self) -> set[int]:
        """Returns the cables that currently have addresses at both ends."""
        return {
            number
            for number, ends in enumerate(self.cables)
            if all(f" c{number} " in self.addresses(name) for name in ends)
        }

    def left_behind(self) -> list[str]:
        """Returns leftover files of jobs, and leftover processes other than the hosts' sshd."""
        found = []
        for name in (*self.names, "desk"):
            files = {path.name for path in self.temporary(name).iterdir()} - FILES_OF_TORCH
            commands = {_command_of(pid) for pid in self._strangers(name)} - {""}
            if name == self.trial.victim and self.trial.fault == Fault.HANGING:
                commands = set()  # a login that hangs stays, whichever command started it
            found += [f"{each} at {name}" for each in sorted(files | commands)]
        return found

    def _strangers(self, name: str) -> list[str]:
        """Returns the processes of a host other than its sshd."""
        own = {str(server.pid) for server in self.servers.values()}
        pids = shell("ip", "netns", "pids", self.space(name)).stdout.split()
        return [pid for pid in pids if pid not in own]

    def close(self) -> None:
        """Kills all remaining processes, including those that mccl left behind, and removes the
        hosts.
        """
        for name in (*self.names, "desk"):
            for pid in self._strangers(name):
                shell("kill", "-9", pid)
        super().close()


def _command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:200]
    except OSError:
        return ""
