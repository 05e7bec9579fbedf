"""docs/house.svg, which scripts/draw_house.py draws from the includes."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from draw_house import DRAWING, draw, main
from house_plan import Box, stack, without_implied
from house_routes import Router
from house_tree import TreeError, read_tree
from layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> set[str]:
    return {each.text for each in ElementTree.fromstring(drawing).iter(f"{SVG}text")}


def titles(drawing: str) -> set[str]:
    return {each.text for each in ElementTree.fromstring(drawing).iter(f"{SVG}title")}


def layers_not_drawn(drawing: str) -> list[str]:
    """Layers without a box; one of the engine's folders goes by its own name."""
    named = texts(drawing)
    return [layer for layer in LAYERS if layer.removeprefix("src/engine/") not in named]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A house of four layers, drawn."""
    write(
        tmp_path,
        {
            "include/mccl/group.h": "#include <vector>\n",
            "src/base/log.h": '#include "mccl/group.h"\n',
            "src/engine/calls/call.h": '#include "base/log.h"\n#include "mccl/group.h"\n',
            "src/engine/engine.h": '#include "engine/calls/call.h"\n#include "base/log.h"\n',
            DRAWING: "",
        },
    )
    assert main(["--root", str(tmp_path)]) == 0
    return tmp_path


def test_the_drawing_is_current(capsys: pytest.CaptureFixture[str]):
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_the_drawing_has_every_layer():
    drawing = (ROOT / DRAWING).read_text(encoding="utf-8")
    assert layers_not_drawn(drawing) == []
    assert layers_not_drawn(drawing.replace(">src/node<", "><")) == ["src/node"]


def test_the_drawing_is_the_same_every_time(tree: Path):
    drawings = set()
    for seed in ("1", "2", "3"):
        subprocess.run(
            [sys.executable, ROOT / "scripts/draw_house.py", "--root", tree],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        drawings.add((tree / DRAWING).read_text(encoding="utf-8"))
    assert len(drawings) == 1


def test_arrows_that_follow_from_others_are_left_out(tree: Path):
    assert titles(draw(read_tree(tree))) == {
        "The layers of MCCL, and which stands on which",
        "include/mccl includes no other layer",
        "src/base includes include/mccl (1)",
        "src/engine includes include/mccl (1), src/base (2)",
        "src/engine includes src/engine/calls (1)",
        "src/engine/calls includes no other layer",
        "src/base: 1 file includes include/mccl",
        "src/engine: 2 files include src/base",
        "src/engine: 1 file includes src/engine/calls",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/kernels/sum.h", ""),
        ("src/base/clock.h", ""),
        ("include/mccl/group.h", "\n" * 500),
        ("src/engine/calls/call.h", '#include "mccl/group.h"\n'),
    ],
    ids=["a new layer", "a new file", "a longer file", "an include less"],
)
def test_a_drawing_that_is_not_current_is_found(
    tree: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
):
    check = ["--check", "--root", str(tree)]
    assert main(check) == 0
    drawn = (tree / DRAWING).read_text(encoding="utf-8")
    write(tree, {name: text})
    assert main(check) == 1
    assert "make house" in capsys.readouterr().err
    assert (tree / DRAWING).read_text(encoding="utf-8") == drawn, "--check writes nothing"
    assert main(["--root", str(tree)]) == 0
    assert main(check) == 0


def test_a_missing_drawing_is_found(tree: Path):
    (tree / DRAWING).unlink()
    assert main(["--check", "--root", str(tree)]) == 1


def test_a_drawing_names_what_is_there_and_no_more(tree: Path):
    named = texts(draw(read_tree(tree)))
    assert {"include/mccl", "src/base", "src/engine", "calls"} <= named
    assert "src/kernels" not in named


def test_an_include_that_goes_the_wrong_way_is_not_drawn(
    tree: Path, capsys: pytest.CaptureFixture[str]
):
    drawn = (tree / DRAWING).read_text(encoding="utf-8")
    write(tree, {"src/base/log.h": '#include "engine/engine.h"\n'})
    assert main(["--root", str(tree)]) == 1
    expected = "src/base/log.h includes engine/engine.h of the later src/engine"
    assert expected in capsys.readouterr().err
    assert (tree / DRAWING).read_text(encoding="utf-8") == drawn


def test_a_folder_that_is_no_layer_is_not_left_out_in_silence(tree: Path):
    write(tree, {"src/attic/old.h": ""})
    with pytest.raises(TreeError, match=r"src/attic is in no layer: add it to HOLDS"):
        read_tree(tree)


def test_a_folder_without_layers_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--root", str(tmp_path)]) == 1
    assert f"{tmp_path} has none of the folders" in capsys.readouterr().err


def test_what_is_drawn_lies_inside_and_apart():
    root = ElementTree.fromstring((ROOT / DRAWING).read_text(encoding="utf-8"))
    page, *boxes = (
        Box(*(round(float(part)) for part in (x, y, x + wide, y + high)))
        for each in root.iter(f"{SVG}rect")
        for x, y, wide, high in [[float(each.get(key)) for key in ("x", "y", "width", "height")]]
    )
    assert page.right <= 900
    assert all(contains(page, box) for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert apart(one, other) or contains(one, other) or contains(other, one)


def contains(outer: Box, inner: Box) -> bool:
    return (
        outer.left <= inner.left
        and outer.top <= inner.top
        and inner.right <= outer.right
        and inner.bottom <= outer.bottom
    )


def apart(one: Box, other: Box) -> bool:
    return not one.beside(other) or one.bottom <= other.top or other.bottom <= one.top


@pytest.mark.parametrize("reach_up", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_any_house_stands(seed: int, reach_up: bool):
    """Whatever includes what: boxes lie apart, arrows go down and through no box."""
    chance = random.Random(seed)
    names = [f"layer {number}" for number in range(chance.randint(1, 12))]
    arrows = {
        (source, target)
        for target, source in itertools.combinations(names, 2)
        if chance.random() < 0.3
    }
    columns = {}
    for name in names:
        left = chance.randrange(0, 600, 100)
        columns[name] = Box(left + 5, 0, left + 100 * chance.randint(1, 3) - 5, 0)
    heights = {name: chance.randint(30, 300) for name in names}
    boxes = stack(names, arrows, columns, heights, 40, reach_up)
    assert all(apart(*pair) for pair in itertools.combinations(boxes.values(), 2))
    for name, box in boxes.items():
        assert box.bottom - box.top >= heights[name]
    routes = Router(boxes, -10, 910).routes(without_implied(arrows))
    assert routes is not None or reach_up, "there is always a way when all gaps are free"
    for (source, target), route in (routes or {}).items():
        assert route.points[0][1] == boxes[source].bottom
        assert route.points[-1][1] == boxes[target].top
        for (x, upper), (end, lower) in itertools.pairwise(route.points):
            assert upper <= lower
            piece = Box(min(x, end), upper, max(x, end) + 1, lower + 1)
            assert all(
                apart(piece, box) for name, box in boxes.items() if name not in (source, target)
            )


def test_implied_arrows_are_those_with_a_longer_way():
    chain = {("d", "c"), ("c", "b"), ("b", "a")}
    assert without_implied(chain | {("d", "a"), ("d", "b"), ("c", "a")}) == chain
    assert without_implied({("b", "a"), ("c", "a")}) == {("b", "a"), ("c", "a")}
