"""The order of the files: what takes long begins first, so that nobody waits for it at the end."""

#: From the longest on, as seen on two quiet cores; the others come after them as they are found.
LONGEST = (
    "test_pip.py",
    "test_examples.py",
    "test_mpi.py",
    "test_doctor.py",
    "test_mlx_lm.py",
    "test_launch_hosts.py",
    "test_editable.py",
    "test_cluster_config.py",
    "test_mlx_lm_programs.py",
    "test_cabling.py",
    "test_torch_hooks.py",
    "test_wheel.py",
    "test_scripts.py",
    "test_mixed.py",
    "test_mlx_training.py",
    "test_mlx_collectives.py",
    "test_mlx_own_checks.py",
    "test_torch_failures.py",
    "test_torch_frameworks.py",
    "test_torch_work.py",
)


def pytest_collection_modifyitems(items: list) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
