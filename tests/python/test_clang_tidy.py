"""The compile commands that scripts/clang_tidy.py derives from those of a build."""

from clang_tidy import one_by_one


def test_sources_that_are_compiled_as_one_are_checked_one_by_one(tmp_path):
    united = tmp_path / "Unity" / "unity_0_cxx.cxx"
    united.parent.mkdir()
    united.write_text('/* generated */\n#include "/src/a.cpp"\n#include "/src/b.cpp"\n')
    alone = tmp_path / "c.cpp"
    alone.write_text('#include "other.h"\n')
    commands = [
        {"file": str(path), "command": f"g++ -O3 -o {path.name}.o -c {path}", "directory": "/"}
        for path in (united, alone)
    ]
    found = {entry["file"]: entry["command"] for entry in one_by_one(commands)}
    assert found == {
        "/src/a.cpp": "g++ -O3 -o unity_0_cxx.cxx.o -c /src/a.cpp",
        "/src/b.cpp": "g++ -O3 -o unity_0_cxx.cxx.o -c /src/b.cpp",
        str(alone): f"g++ -O3 -o c.cpp.o -c {alone}",
    }
