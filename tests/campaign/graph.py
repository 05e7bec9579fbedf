"""Properties of a set of cables: connected parts and rings."""

from collections.abc import Iterable

from trial import Cable


def parts(names: Iterable[str], cables: Iterable[Cable]) -> list[list[str]]:
    """Returns the connected parts of these hosts. Cables to other hosts are ignored."""
    names = list(names)
    part = {name: {name} for name in names}
    for a, b in cables:
        if a in part and b in part and part[a] is not part[b]:
            part[a] |= part[b]
            for name in part[b]:
                part[name] = part[a]
    return sorted({id(each): sorted(each) for each in part.values()}.values())


def joined(names: Iterable[str], cables: Iterable[Cable]) -> bool:
    return len(parts(names, cables)) < 2


def has_ring(names: Iterable[str], cables: Iterable[Cable]) -> bool:
    """Returns whether a ring of cables passes through all hosts. Two hosts need only one cable."""
    names = list(names)
    near: dict[str, set[str]] = {name: set() for name in names}
    for a, b in cables:
        if a in near and b in near:
            near[a].add(b)
            near[b].add(a)
    if len(names) < 3:
        return joined(names, cables)
    if any(len(each) < 2 for each in near.values()):
        return False

    def goes_on(path: list[str]) -> bool:
        if len(path) == len(names):
            return path[0] in near[path[-1]]
        left = set(names) - set(path)
        # A remaining host needs two neighbours that also remain or are an end of the path.
        open_ends = left | {path[0], path[-1]}
        if any(len(near[name] & open_ends) < 2 for name in left):
            return False
        return any(goes_on([*path, name]) for name in sorted(near[path[-1]] & left))

    return goes_on(names[:1])
