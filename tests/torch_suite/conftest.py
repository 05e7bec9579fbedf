import re


def pytest_collection_modifyitems(config, items):
    """Leaves out what a class does not ask for."""
    unwanted = [item for item in items if not re.search(getattr(item.cls, "ONLY", ""), item.name)]
    items[:] = [item for item in items if item not in unwanted]
    config.hook.pytest_deselected(items=unwanted)
