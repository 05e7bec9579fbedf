"""Hostfiles and lists of hosts: the forms that `mccl launch` accepts, and its errors for others."""

import json
import re
import time
from pathlib import Path

import pytest
from launching import ROOT, run


def test_slots_behind_a_colon_are_distinguished_from_ports():
    said = run("--hosts", "a:4,b:4", "true", status=2).stderr
    assert "give -n 4" in said
    assert '{"ssh": "a", "slots": 4}' in said
    assert "me@b:2222" in run("--hosts", "me@b:2222", "--dry-run", "true").stdout


def test_a_large_hostfile_is_read_at_once(tmp_path: Path):
    file = tmp_path / "desk.json"
    file.write_text(json.dumps([{"ssh": f"h{i}", "slots": 1} for i in range(100_000)]))
    began = time.monotonic()
    said = run("--check", file, status=2).stderr
    assert time.monotonic() - began < 5
    assert "a list of 1 to 4096 hosts; found 100000" in said


def test_a_duplicate_key_is_an_error(tmp_path: Path):
    file = tmp_path / "desk.json"
    file.write_text('[{"ssh": "a",\n "ssh": "b"}]')
    said = run("--check", file, status=2).stderr
    assert f"{file}, line 2, column " in said
    assert 'the key "ssh" for the second time' in said


def test_a_hostfile_is_checked(tmp_path: Path):
    file = tmp_path / "desk.json"
    file.write_text('[{"ssh": "a", "ips": ["10.0.0.1"], "slots": 2}, {"ssh": "b"}]')
    assert "10.0.0.1" in run("--check", file).stdout
    file.write_text('[{"ssh": "a", "ip": []}]')
    said = run("--check", file).stderr
    assert f'"ip" of {file}[0] (did you mean "ips"?)' in said


@pytest.mark.parametrize(
    ("devices", "flags", "expected"),
    [
        ([[None, "r"], ["r", "r"]], (), '"rdma" of b (#1): expected null for the host itself'),
        ([[None, "r"], [None, None]], (), '"rdma" has no device from b (#1) to a (#0)'),
        ([[None, "r"], ["r", None]], ("--backend", "jaccl"), ""),
        (None, ("--backend", "jaccl"), 'jaccl needs "rdma"'),
    ],
)
def test_devices_are_checked(tmp_path: Path, devices: list | None, flags: tuple, expected: str):
    file = tmp_path / "desk.json"
    hosts: list[dict] = [{"ssh": "a"}, {"ssh": "b"}]
    for host, row in zip(hosts, devices or [None, None], strict=True):
        host |= {"rdma": row} if row else {}
    file.write_text(json.dumps(hosts))
    done = run(*flags, "--check", file, status=2 if expected else 0)
    assert expected in done.stderr


def test_the_schema_knows_what_the_program_does(tmp_path: Path):
    schema = json.loads((ROOT / "docs/hostfile.schema.json").read_text())
    file = tmp_path / "desk.json"
    file.write_text('[{"ssh": "a", "x": 1}]')
    said = run("--check", file).stderr
    told = re.search(
        "A host may have the keys (.*); an object around the hosts may have the keys (.*)\n", said
    )
    places = (schema["$defs"]["host"], schema["oneOf"][1])
    for known, place in zip(told.groups(), places, strict=True):
        assert set(known.split(", ")) == set(place["properties"])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"envs": ["MCCL_RANK=1"], "hosts": [{"ssh": "127.0.0.1"}]}', ".envs: "),
        ('{"env": {"MASTER_PORT": "1"}, "hosts": [{"ssh": "127.0.0.1"}]}', ".envs: "),
        ('[{"ssh": "127.0.0.1", "env": {"LOCAL_RANK": "1"}}]', '"env" of 127.0.0.1: '),
    ],
)
def test_a_hostfile_may_not_assign_ranks(tmp_path: Path, text: str, where: str):
    file = tmp_path / "desk.json"
    file.write_text(text)
    for flags in (("--hostfile", file, "true"), ("--check", file)):
        said = run(*flags, status=2).stderr
        assert where in said
        assert "for the ranks itself" in said
