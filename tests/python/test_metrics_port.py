"""The metrics that each rank serves, read by Debian's Prometheus, and the Grafana dashboard."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from free_port import PORTS, free_port
from launching import ROOT, environment, program, wait_until

BENCH = ("bench", "all_reduce", "--sizes", "256K", "--no-bounds", "--seconds")
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


def has_prometheus() -> bool:
    """True if ranks of this build serve metrics."""
    linked = subprocess.run(["ldd", program()], capture_output=True, text=True).stdout
    return "libprometheus-cpp-core" in linked


pytestmark = pytest.mark.skipif(not has_prometheus(), reason="built without prometheus-cpp")


def free_ports() -> int:
    """Returns the first of two consecutive ports on which nothing listens."""
    while True:
        first = free_port()
        with socket.socket() as second:
            try:
                second.bind(("", first + 1))
            except OSError:
                continue
        if first + 1 in PORTS:
            return first


def settings(port: int, **more: str) -> dict[str, str]:
    """Returns the environment of a job whose two ranks use links, and compress."""
    return environment(
        MCCL_METRICS_PORT=str(port),
        MCCL_TRANSPORT="tcp",
        MCCL_COMPRESSION="bf16",
        MCCL_COMPRESSION_MIN_BYTES="0",
        **more,
    )


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The metrics port of rank 0 of a job that runs until the tests have ended."""
    first = free_ports()
    words = [program(), *BENCH, "300"]
    with subprocess.Popen(words, env=settings(first), stdout=subprocess.DEVNULL) as job:
        try:
            wait_until(lambda: answers(first) and answers(first + 1))
            yield first
        finally:
            job.terminate()


def answers(port: int) -> bool:
    try:
        return "mccl_calls_total{" in get(port)[1]
    except OSError:
        return False


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[str, str]:
    """Returns the type and the text of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def prometheus() -> Path:
    """Returns Debian's Prometheus. Unpacks its package if it is not installed.

    An installation would start a service.
    """
    if installed := shutil.which("prometheus"):
        return Path(installed)
    folder = ROOT / "build/prometheus"
    unpacked = folder / "root/usr/bin/prometheus"
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = "apt-get download prometheus && dpkg -x prometheus_*.deb root"
        done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"needs Debian's package prometheus: {done.stderr}")
    return unpacked


@pytest.fixture(scope="module")
def query(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable]:
    """A function that runs a query on a Prometheus which reads the metrics of both ranks."""
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    jobs = [{"job_name": "mccl", "static_configs": [{"targets": targets}]}]
    scrape = {"scrape_interval": "200ms", "scrape_timeout": "200ms"}
    # JSON is YAML.
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"global": scrape, "scrape_configs": jobs}))
    place = f"127.0.0.1:{free_port()}"
    command = [
        prometheus(), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={place}",
    ]  # fmt: skip
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as server:

        def run(expression: str) -> list[dict[str, Any]]:
            words = urllib.parse.urlencode({"query": expression})
            with urllib.request.urlopen(f"http://{place}/api/v1/query?{words}", timeout=10) as got:
                answer = json.load(got)
            assert answer["status"] == "success", answer
            return answer["data"]["result"]

        def reads_both() -> bool:
            try:
                return len(run("up == 1")) == 2
            except OSError:
                return False

        try:
            wait_until(reads_both, (folder / "log").read_text())
            yield run
        finally:
            server.terminate()


def expressions() -> list[str]:
    """Returns the queries of the dashboard, with values in place of Grafana's variables."""
    dashboard = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [e.replace("$__rate_interval", "10s").replace("$instance", ".*") for e in found]


@pytest.mark.parametrize("expression", expressions())
def test_a_query_of_the_dashboard_finds_series(query, expression):
    assert "$" not in expression
    wait_until(lambda: query(expression), expression)


def test_prometheus_reads_both_ranks(query):
    wait_until(lambda: len(query("rate(mccl_link_sent_bytes_total[10s]) > 0")) == 2)
    info = [series["metric"] for series in query("mccl_info")]
    assert {each["rank"] for each in info} == {"0", "1"}
    assert len({each["job_name"] for each in info}) == 1
    types = {series["metric"]["codec"] for series in query("mccl_compression_calls_total")}
    assert types == {"bf16"}


def test_every_series_of_the_dashboard_is_documented():
    text = (ROOT / "docs/inspect.md").read_text() + (ROOT / "docs/operating.md").read_text()
    names = set(re.findall(r"mccl_\w+", " ".join(expressions())))
    fields = {name for name in names if f"`{name}`" not in text}
    assert not {name for name in fields if f"`{name.removeprefix('mccl_')}`" not in text}


def test_both_formats(port):
    kind, text = get(port)
    assert kind.startswith("text/plain; version=0.0.4")
    assert "# TYPE mccl_calls_total counter" in text
    kind, text = get(port, Accept=OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert "# TYPE mccl_calls counter" in text and text.endswith("# EOF\n")


def test_other_paths(port):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/")


def test_only_the_loopback_interface_is_listened_at(port):
    connections = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in connections if line.split()[3] == "0A"]
    assert [each for each in listening if each.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def threads(pid: int) -> set[str]:
    """Returns the names of the threads of a process's children."""
    children = psutil.Process(pid).children()
    paths = [path for child in children for path in Path(f"/proc/{child.pid}/task").glob("*/comm")]
    return {path.read_text().strip() for path in paths}


@pytest.mark.parametrize("more", [{}, {"MCCL_METRICS_PORT": "0"}])
def test_no_thread_without_the_setting(more):
    words = [program(), *BENCH, "300"]
    with subprocess.Popen(words, env=environment(**more), stdout=subprocess.DEVNULL) as job:
        try:
            wait_until(lambda: "mccl progress" in threads(job.pid))
            assert "mccl metrics" not in threads(job.pid)
        finally:
            job.terminate()


def test_a_taken_port_is_a_warning_and_the_job_runs():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        done = subprocess.run(
            [program(), *BENCH, "0.1"], env=settings(number - 1), capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "no metrics" in line]
    assert any(f"rank 1] this rank serves no metrics: cannot listen on 127.0.0.1:{number}" in line
               for line in warnings)  # fmt: skip
    assert all("choose another MCCL_METRICS_PORT" in line for line in warnings)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MCCL_METRICS_PORT", "65536", "65535"),
        ("MCCL_METRICS_PORT", "http", "MCCL_METRICS_PORT"),
        ("MCCL_METRICS_ADDR", "localhost", "an IP address"),
        ("MCCL_METRICS_ADDR", "127.0.0.1,0.0.0.0", "an IP address"),
    ],
)
def test_wrong_settings(name, value, expected):
    env = environment(**{name: value})
    done = subprocess.run([program(), *BENCH, "0.1"], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert name in done.stderr and expected in done.stderr


def test_a_port_that_does_not_exist():
    env = settings(65535, MCCL_METRICS_ADDR="::1")
    done = subprocess.run([program(), *BENCH, "0.1"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "serves no metrics at port 65536: the highest possible port is 65535" in done.stderr
