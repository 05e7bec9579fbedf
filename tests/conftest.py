"""Sets the order of the test files and deselects the tests of a campaign.

The longest files start first, so that none of them is still running alone at the end.
"""

import pytest

#: The slowest files, longest first, as measured on two idle cores. All other files follow in the
#: order in which pytest finds them.
LONGEST = (
    "test_mpi.py",
    "test_doctor.py",
    "test_pip.py",
    "test_cluster_config.py",
    "test_doctor_odd_hosts.py",
    "test_editable.py",
    "test_rdma_guest.py",
    "test_examples.py",
    "test_readme_example.py",
    "test_launch_hosts.py",
    "test_cabling.py",
    "test_cluster_devices.py",
    "test_cluster_macs.py",
    "test_mixed.py",
    "test_torch_hooks.py",
    "test_scripts.py",
    "test_mlx_lm.py",
    "test_mlx_lm_programs.py",
    "test_torch_failures.py",
    "test_wheel.py",
    "test_mlx_collectives.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """Keeps tests of a campaign only if `-m` is given, and sorts the files."""
    if not config.option.markexpr:
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
