"""Sets the order of the test files, deselects long tests and those of a campaign, and names jobs.

The longest files start first, so that none of them is still running alone at the end.
"""

import uuid

import pytest

#: Marks of the tests that run only where `-m` asks for them.
LATER = ("long", "campaign")

#: The slowest files, longest first, as measured on two idle cores. All other files follow in the
#: order in which pytest finds them.
LONGEST = (
    "test_mpi.py",
    "test_pip.py",
    "test_editable.py",
    "test_cabling.py",
    "test_doctor.py",
    "test_launch_robust.py",
    "test_launch.py",
    "test_mlx_lm_programs.py",
    "test_readme_example.py",
    "test_doctor_odd_hosts.py",
    "test_examples.py",
    "test_launch_hosts.py",
    "test_launch_cables.py",
    "test_guests.py",
    "test_wheel.py",
    "test_cluster_setup.py",
    "test_cluster_config.py",
    "test_mixed.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Keeps long tests and those of a campaign only if `-m` is given, and sorts the files."""
    if not config.option.markexpr:
        items[:] = [item for item in items if not any(map(item.get_closest_marker, LATER))]
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture
def mark() -> str:
    """A word that is in the command line of no other process."""
    return f"mark-{uuid.uuid4().hex}"
