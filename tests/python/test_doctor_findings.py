"""Output of `mccl doctor` that programs read: exit status, ids of findings, and untimed paths."""

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from launching import PATIENCE, ROOT, environment, program

needs_hosts = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
ALL = ("--hosts", "a,b,c")


@pytest.fixture(scope="module")
def hosts() -> Iterator[CabledHosts]:
    """Three hosts in a ring of cables that have addresses."""
    with CabledHosts(3, [("a", "b"), ("b", "c"), ("c", "a")]) as made:
        made.give_addresses()
        yield made


@needs_hosts
def test_the_exit_status_is_that_of_the_worst_finding(hosts: CabledHosts):
    assert hosts.mccl("doctor", *ALL, "--json").returncode == 0
    hosts.ip("c", "link", "set", "c2", "mtu", 1000)
    try:
        done = hosts.mccl("doctor", *ALL, status=3)
        assert "warning: c: the MTU of c2 is 1000" in done.stdout
        hosts.ip("b", "link", "set", "c0", "down")
        hosts.mccl("doctor", *ALL, status=1)
    finally:
        hosts.ip("b", "link", "set", "c0", "up")
        hosts.ip("c", "link", "set", "c2", "mtu", 1500)


@needs_hosts
def test_untimed_paths_are_reported(hosts: CabledHosts):
    answer = json.loads(hosts.mccl("doctor", *ALL, "--no-measure", "--json").stdout)
    assert all(path["connects"] and path["mbit_per_s"] == 0 for path in answer["paths"])
    done = hosts.mccl("doctor", *ALL, "--measure-for", 1, "--json", status=None)
    answer = json.loads(done.stdout)
    left = [path for path in answer["paths"] if path["mbit_per_s"] == 0]
    told = [f["what"] for f in answer["findings"] if f["id"] == "not-timed-time"]
    said = f"{len(left)} of 12 paths were not timed: the limit of 1 s was reached"
    assert told == ([said] if left else [])


@needs_hosts
def test_two_doctors_at_once_do_not_disturb_each_other(hosts: CabledHosts):
    command = hosts.on("desk", program(), "doctor", "--ssh-arg=-F", "--ssh-arg", hosts.config)
    both = [
        subprocess.Popen(
            [*command, *ALL, "--no-measure", "--json"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(),
        )
        for _ in range(2)
    ]  # fmt: skip
    for each in both:
        answer = json.loads(each.communicate(timeout=2 * PATIENCE)[0])
        assert [f for f in answer["findings"] if f["severity"] != "note"] == []
        assert all(path["connects"] for path in answer["paths"])


def test_every_finding_has_a_documented_id():
    """The ids in the sources are hyphenated words in quotes, beside a severity or after `.id`."""
    made = set()
    for folder in ("cluster", "cli/config", "cli/doctor", "cli/hosts", "cli/probe"):
        for file in (ROOT / "src" / folder).glob("*.cpp"):
            # Names of threads and arguments of programs look the same, so they are removed first.
            text = re.sub(r"start_thread\(\s*\S+|says\(\{.*?\}", "", file.read_text())
            made |= set(re.findall(r'\.id = "([a-z0-9-]+)"', text))
            made |= set(re.findall(r'[{(? :]\s*"([a-z0-9]+(?:-[a-z0-9]+)+)",\s', text))
            made |= set(re.findall(r'"(thunderbolt-[a-z-]+)"', text))
    made |= set(re.findall(r'\.id = "([a-z0-9-]+)"', (ROOT / "src/cli/doctor.cpp").read_text()))
    text = (ROOT / "docs/operating.md").read_text().split("its `id` does not:")[1].split("\n## ")[0]
    told = set(re.findall("`([a-z0-9-]+)`", text))
    assert made - {"nvidia-smi"} == told
