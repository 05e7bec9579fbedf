"""The files for packages, hosted tests and releases agree with the rest of the project."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import release
from launching import ROOT

#: Programs that scripts/apt-packages.txt lists for make, but that a package does not need.
FOR_MAKE = {"ccache", "g++", "git", "make", "python3-dev", "python3-venv"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in [*release.PLACES, "CHANGELOG.md", "debian/changelog"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_all_files_have_one_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", release.version(ROOT))


def test_a_release_sets_the_version_and_dates_the_notes(copy: Path):
    release.prepare(copy, "7.8.9", "2030-01-31")
    assert release.version(copy) == "7.8.9"
    assert "## [Unreleased]\n\n## [7.8.9] - 2030-01-31\n" in (copy / "CHANGELOG.md").read_text()
    assert "### Added\n" in release.notes(copy, "7.8.9")
    assert release.notes(copy, "Unreleased") == ""
    debian = (copy / "debian/changelog").read_text()
    assert debian.startswith("mccl (7.8.9) unstable; urgency=medium\n")
    assert "  Thu, 31 Jan 2030 12:00:00 +0000\n\nmccl (" in debian
    with pytest.raises(SystemExit, match="exists already"):
        release.prepare(copy, "7.8.9", "2030-01-31")


def test_a_tag_carries_the_notes(copy: Path, monkeypatch: pytest.MonkeyPatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a name")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "name@example.org")

    def git(*words: str) -> str:
        command = ["git", "-C", str(copy), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet")
    release.prepare(copy, "7.8.9", "2030-01-31")
    with pytest.raises(SystemExit, match="without a commit"):
        release.tag(copy)
    git("add", ".")
    git("commit", "--quiet", "--message=Release 7.8.9")
    assert release.tag(copy) == "v7.8.9"
    message = git("tag", "--list", "--format=%(contents)", "v7.8.9")
    assert message.startswith("MCCL 7.8.9\n\n")
    assert "### Added\n" in message


def test_different_versions_are_an_error(copy: Path):
    cargo = copy / "bindings/rust/Cargo.toml"
    cargo.write_text(cargo.read_text().replace('\nversion = "0', '\nversion = "99'))
    with pytest.raises(SystemExit, match="different versions"):
        release.version(copy)


def test_the_debian_package_has_the_version_and_needs_what_make_needs():
    first = (ROOT / "debian/changelog").read_text().splitlines()[0]
    assert first.startswith(f"mccl ({release.version(ROOT)})")
    needed = re.search(r"^Build-Depends: (.*)$", (ROOT / "debian/control").read_text(), re.M)[1]
    names = {part.split()[0] for part in needed.split(",")} - {"debhelper-compat"}
    lines = (ROOT / "scripts/apt-packages.txt").read_text().splitlines()
    assert names == {line for line in lines if line and line[0] != "#"} - FOR_MAKE


def test_the_formula_needs_what_the_brewfile_lists():
    formula = (ROOT / "packaging/homebrew/mccl.rb").read_text()
    brewfile = (ROOT / "Brewfile").read_text()
    needed = re.findall(r'depends_on "(.+?)"', formula)
    assert len(needed) == 9
    assert set(needed) <= set(re.findall(r'^brew "(.+?)"', brewfile, re.M))


def test_wheels_are_for_every_torch_and_mlx_that_the_project_names():
    lines = (ROOT / "scripts/frameworks.txt").read_text().splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    torch = re.search(r"^DEFAULT_TORCH := (\S+)", (ROOT / "Makefile").read_text(), re.M)[1]
    requirements = (ROOT / "scripts/requirements.txt").read_text()
    mlx = re.search(r"^mlx==(\S+)", requirements, re.M)[1]
    assert {f"torch=={torch}", f"mlx=={mlx}"} <= set(listed)
    minors = [line.rpartition(".")[0] for line in listed if line.startswith("torch==")]
    assert len(minors) == len(set(minors)), "two patch releases of torch share an extension"


def test_the_fuzzers_of_hosted_tests_have_seeds():
    build = (ROOT / ".clusterfuzzlite/build.sh").read_text()
    assert "tests/fuzz/corpus/*/" in build
    targets = {path.stem for path in (ROOT / "tests/fuzz").glob("*_fuzz.cpp")}
    assert targets == {f"{path.name}_fuzz" for path in (ROOT / "tests/fuzz/corpus").iterdir()}


def steps() -> list[str]:
    texts = [path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml"))]
    return [step for text in texts for step in re.findall(r"^ +- run: (.+)$", text, re.M)]


def test_hosted_tests_run_what_a_user_can_run():
    makefile = (ROOT / "Makefile").read_text()
    matrix = re.search(r"goal: \[(.+)\]", (ROOT / ".github/workflows/nightly.yml").read_text())[1]
    goals = [*matrix.split(", ")]
    for step in steps():
        if step.startswith("make ") and "matrix.goal" not in step:
            goals.append(step.split()[1])
        else:
            assert re.match(r"make |apt-get |brew bundle |scripts/release\.py ", step), step
    assert len(goals) > 10
    assert [g for g in goals if not re.search(rf"^[\w -]*\b{g}\b[\w -]*:", makefile, re.M)] == []
