"""Hosts with a network for ssh, joined by cables that have no addresses yet."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launching import PATIENCE, environment, heed_signals, program
from ssh_hosts import SshHosts, shell

# A program that relays the requests and answers of the real `mccl probe`, with changes applied.
ODD_PROBE = """#!{python}
import json, os, subprocess, sys, threading, time
real = "{program}"
if sys.argv[1:2] != ["probe"]:
    os.execv(real, [real, *sys.argv[1:]])
probe = subprocess.Popen(
    [real, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
def asked(request): return request
def answered(answer): return [answer]
{changes}
def pass_on():
    for line in sys.stdin:
        request = asked(json.loads(line))
        if request is not None:
            probe.stdin.write(json.dumps(request) + "\\n")
            probe.stdin.flush()
    probe.stdin.close()
threading.Thread(target=pass_on, daemon=True).start()
for line in probe.stdout:
    for answer in answered(json.loads(line)):
        print(json.dumps(answer), flush=True)
"""


def write_odd_probe(folder: Path, changes: str) -> None:
    """Writes a program `mccl` into the folder. `changes` alters the answers of its `mccl probe`."""
    odd = folder / "mccl"
    odd.write_text(ODD_PROBE.format(python=sys.executable, program=program(), changes=changes))
    odd.chmod(0o755)


class CabledHosts(SshHosts):
    """Hosts joined by cables: cable k, named `c<k>` at both ends, joins the two hosts `cables[k]`.

    The network for ssh is `cable` on each host; the tests call it the side network.
    """

    def __init__(self, count: int, cables: list[tuple[str, str]], apart: bool = False) -> None:
        super().__init__(count, apart)
        self.cables = cables
        try:
            for number, (a, b) in enumerate(cables):
                self._lay(number, a, b)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "CabledHosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lay(self, number: int, a: str, b: str) -> None:
        self._must(
            "ip", "-n", self.space(a), "link", "add", f"c{number}", "type", "veth",
            "peer", "name", f"c{number}", "netns", self.space(b),
        )  # fmt: skip
        for name in (a, b):
            self.ip(name, "link", "set", f"c{number}", "up")

    def ip(self, name: str, *words: object) -> None:
        """Runs `ip` on a host and fails the test unless it succeeds."""
        self._must("ip", "-n", self.space(name), *words)

    def addresses(self, name: str) -> str:
        """Returns all IPv4 addresses of the host, as `ip` lists them."""
        return shell("ip", "-n", self.space(name), "-o", "-4", "addr", "show").stdout

    def give_addresses(self) -> None:
        """Gives each cable k a /30: 10.81.k.1 for its first host, 10.81.k.2 for the other."""
        for number, ends in enumerate(self.cables):
            for i, name in enumerate(ends):
                self.ip(name, "addr", "add", f"10.81.{number}.{i + 1}/30", "dev", f"c{number}")

    def with_programs(self, name: str, folder: Path) -> None:
        """Puts the folder first in the PATH of the host's ssh sessions."""
        self.sshd_options[name] = ("-o", f"SetEnv=PATH={folder}:{os.environ['PATH']}")
        self.serve_again(name)

    @contextmanager
    def with_odd_probe(self, name: str, folder: Path, changes: str) -> Iterator[None]:
        """Makes the host's `mccl probe` answer as `changes` says.

        `changes` is Python code. It may define `asked`, which returns the request to pass on (None
        drops it), or `answered`, which returns the list of answers to send instead of a given
        answer.
        """
        write_odd_probe(folder, changes)
        self.with_programs(name, folder)
        try:
            yield
        finally:
            self.sshd_options.clear()
            self.serve_again(name)

    def mccl(
        self, command: str, *words: object, status: int | None = 0, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Runs `mccl COMMAND` on the desk host and checks its exit status; None accepts any."""
        done = subprocess.run(
            [*self.on("desk", program(), command, "--ssh-arg=-F", "--ssh-arg", self.config),
             *map(str, words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE,
            env=environment(), preexec_fn=heed_signals, **options,
        )  # fmt: skip
        # `doctor` exits with the status of its most severe finding. Callers give the status for
        # faults (1), so this function expects 3 if there are warnings but no faults.
        if command == "doctor" and status == 1 and done.stdout.startswith("{"):
            found = {f["severity"] for f in json.loads(done.stdout).get("findings", [])}
            status = 3 if found <= {"note", "warning"} and "warning" in found else 1
        assert status in (None, done.returncode), (done.returncode, done.stdout, done.stderr)
        return done
