import copy
import dataclasses
import inspect
import json
import os
import pickle
import pprint
import re
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mccl import _core, config
from mccl.config import MCCLConfig, get_config, init, resolved_settings, settings_markdown

ROOT = Path(__file__).parents[2]
ROWS = {row["name"]: row for row in _core.settings()}


#: Settings whose defaults MCCL may replace by a more suitable value, unless they are given.
GIVE_WAY = {"port_base", "chunk_bytes"}


@pytest.fixture(autouse=True)
def clean_process(monkeypatch):
    """Removes all settings of the environment, and restores the previous settings afterwards."""
    for name in list(os.environ):
        if name.startswith("MCCL_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(config, "_overrides", MCCLConfig())


def values_of(row):
    """Returns a hypothesis strategy for valid values of a setting."""
    kind = row["type"]
    if row["name"] == "rdma_gid":
        return st.sampled_from(["", "roce_v2", "ipv6"]) | st.ip_addresses().map(str)
    if row["name"] == "metrics_addr":
        return st.ip_addresses().map(str)
    if kind == "boolean":
        return st.booleans()
    if kind == "bytes":
        return st.integers(4096, 2**30)
    if kind == "integer":
        most = re.search(r" to (\d+)", row["range"])
        return st.integers(1, min(65535, int(most[1])))
    if kind == "number":
        return st.floats(0.001, 1)
    if kind == "choice":
        return st.sampled_from(row["range"].split(", "))
    letters = st.characters(codec="utf-8", categories=["L", "N", "P", "S"])
    return st.text(letters, min_size=1 if row["secret"] else 0, max_size=30)


some_settings = st.fixed_dictionaries(
    {}, optional={name: values_of(row) for name, row in ROWS.items()}
)


def test_fields_are_those_of_the_table_with_typed_defaults():
    defaults = MCCLConfig()
    assert list(inspect.signature(MCCLConfig).parameters) == list(ROWS)
    assert defaults.transport == "auto"
    assert defaults.port_base == 29600
    assert type(defaults.port_base) is int
    assert defaults.topk_ratio == 0.01
    assert type(defaults.timeout) is float
    assert defaults.transport_crc is False
    assert defaults.listen_addr == ""
    assert all(hasattr(defaults, name) for name in ROWS)


@given(some_settings)
def test_given_values_are_returned_unchanged(settings):
    made = MCCLConfig(**settings)
    assert made.given == settings
    assert {name: getattr(made, name) for name in settings} == settings
    assert MCCLConfig.from_dict(made.to_dict()) == made
    assert MCCLConfig.from_dict(made.given).given == made.given
    assert MCCLConfig.from_env(made.to_env()) == made
    assert set(made.to_env()) == {ROWS[name]["variable"] for name in settings}
    assert pickle.loads(pickle.dumps(made)).given == made.given


@given(st.dictionaries(st.sampled_from(list(ROWS)), st.text(max_size=20)))
def test_any_text_is_taken_or_refused(settings):
    try:
        made = MCCLConfig(**settings)
    except ValueError:
        return
    assert MCCLConfig.from_dict(made.to_dict()) == made


def test_fault_32_misspelt_names_are_refused_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean compression"):
        MCCLConfig(compresion="fp16")
    with pytest.raises(ValueError, match="did you mean port_base"):
        MCCLConfig.from_dict({"portbase": 1})
    with pytest.raises(ValueError, match="did you mean chunk_bytes"):
        init(chunk_byte=1)
    with pytest.raises(ValueError, match="use the name of its setting, port_base"):
        init({"MCCL_PORT_BASE": 1})
    with pytest.raises(ValueError, match="name of a setting"):
        init({3: 1})
    with pytest.raises(AttributeError, match="did you mean rank"):
        MCCLConfig().rnak = 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port_base", 65536),
        ("port_base", 1.5),
        ("port_base", True),
        ("chunk_bytes", "4Q"),
        ("transport", "udp"),
        ("transport", 5),
        ("transport_crc", 2),
        ("topk_ratio", 0.0),
        ("topk_ratio", float("nan")),
        ("timeout", float("inf")),
        ("listen_addr", ["a"]),
        ("ifname", "a\nb"),
        ("root", "\udcff"),
    ],
)
def test_bad_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name}'?: expected"):
        MCCLConfig(**{name: value})
    changed = MCCLConfig()
    with pytest.raises(ValueError):
        setattr(changed, name, value)
    assert changed.given == {}


def test_the_error_for_a_list_of_names_suggests_commas():
    with pytest.raises(ValueError, match=r"expected str, several separated by commas; found list"):
        init(listen_addr=["127.0.0.1"])
    with pytest.raises(ValueError, match=r"root: expected str; found list"):
        init(root=["a"])


def test_an_empty_job_key_is_an_error_and_not_no_key():
    changed = MCCLConfig(job_key="hush")
    for give in (
        lambda: MCCLConfig(job_key=""),
        lambda: setattr(changed, "job_key", ""),
        lambda: init(job_key=""),
        lambda: init({"job_key": ""}),
        lambda: config.texts_of({"job_key": ""}),
    ):
        with pytest.raises(ValueError, match=r"job_key is set and empty: .*openssl rand"):
            give()
    with pytest.raises(ValueError, match="MCCL_JOB_KEY is set and empty"):
        MCCLConfig.from_env({"MCCL_JOB_KEY": ""})
    assert changed.job_key == "hush"
    changed.job_key = None
    assert changed.job_key == ""


def test_a_missing_job_key_is_not_an_empty_one(monkeypatch):
    made = MCCLConfig.from_env({})
    assert "MCCL_JOB_KEY" not in made.to_env()
    assert MCCLConfig.from_env(made.to_env()) == made
    assert MCCLConfig.from_dict(made.to_dict()) == made
    monkeypatch.setenv("MCCL_JOB_KEY", "hush, hush, hush")
    init(made)
    assert get_config().job_key == "hush, hush, hush"


def test_values_may_be_written_as_in_the_environment():
    made = MCCLConfig(
        chunk_bytes="8M", transport_crc="on", log_level="info", shader_path=Path("/a")
    )
    assert made.chunk_bytes == 8 << 20
    assert made.transport_crc is True
    assert made.log_level == "INFO"
    assert made.shader_path == "/a"
    assert MCCLConfig(transport_crc=1).transport_crc is True


def test_attributes_can_be_set_and_unset():
    made = MCCLConfig(port_base=31000)
    made.compression = "fp16"
    assert made.given == {"port_base": 31000, "compression": "fp16"}
    made.port_base = None
    del made.compression
    assert made.given == {}
    assert made.port_base == 29600


def test_copies_are_independent():
    made = MCCLConfig(port_base=31000)
    for other in (copy.copy(made), copy.deepcopy(made)):
        other.port_base = 32000
        other.given["rank"] = 1
    assert made.given == {"port_base": 31000}


def test_replace_changes_what_it_names_and_gives_nothing_else(monkeypatch):
    made = MCCLConfig(port_base=31000, job_key="hush, hush, hush")
    other = dataclasses.replace(made, compression="fp16")
    assert type(other) is MCCLConfig
    assert other.given == {**made.given, "compression": "fp16"}
    assert made.given == {"port_base": 31000, "job_key": "hush, hush, hush"}
    assert dataclasses.replace(made, port_base=None).given == {"job_key": "hush, hush, hush"}
    assert dataclasses.replace(MCCLConfig(), chunk_bytes="1MB").given == {"chunk_bytes": 1 << 20}
    assert made.__replace__(rank=1).given == {**made.given, "rank": 1}
    with pytest.raises(ValueError, match="did you mean rank"):
        dataclasses.replace(made, rnak=1)
    # A setting that was not given still comes from the environment.
    monkeypatch.setenv("MCCL_CHUNK_BYTES", "8M")
    init(dataclasses.replace(made, rank=1))
    assert get_config().chunk_bytes == 8 << 20


def test_a_config_is_a_dataclass():
    assert dataclasses.is_dataclass(MCCLConfig)
    assert [field.name for field in dataclasses.fields(MCCLConfig)] == list(ROWS)
    made = MCCLConfig(port_base=31000)
    assert dataclasses.asdict(made) == {"port_base": 31000}
    assert "port_base=31000" in pprint.pformat(MCCLConfig(port_base=31000, ifname="x" * 90))


def test_bytes_are_read_with_any_unit_of_1024():
    for text in ("1M", "1m", "1MB", "1mb", "1MiB", "1048576B", " 1 MB "):
        assert MCCLConfig(chunk_bytes=text).chunk_bytes == 1 << 20, text
        assert MCCLConfig.from_env({"MCCL_CHUNK_BYTES": text}).chunk_bytes == 1 << 20, text
    with pytest.raises(ValueError, match="with a unit of 1024"):
        MCCLConfig(chunk_bytes="1.5MB")


def test_repr_shows_what_differs_and_masks_the_key():
    assert repr(MCCLConfig()) == "MCCLConfig()"
    assert repr(MCCLConfig(port_base=29600, compression="fp16")) == "MCCLConfig(compression='fp16')"
    assert "hush" not in repr(MCCLConfig(job_key="hush"))


def test_equality_is_of_values_and_configs_are_not_hashable():
    assert MCCLConfig() == MCCLConfig(port_base=29600)
    assert MCCLConfig() != MCCLConfig(port_base=29601)
    assert MCCLConfig() != 3
    with pytest.raises(TypeError):
        hash(MCCLConfig())


def test_from_env_reads_only_the_given_variables(monkeypatch):
    monkeypatch.setenv("MCCL_PORT_BASE", "31000")
    assert MCCLConfig.from_env({}).port_base == 29600
    assert MCCLConfig.from_env().port_base == 31000
    with pytest.raises(ValueError, match="did you mean MCCL_PORT_BASE"):
        MCCLConfig.from_env({"MCCL_PORTBASE": "1"})
    with pytest.raises(ValueError, match="MCCL_TIMEOUT: expected a number"):
        MCCLConfig.from_env({"MCCL_TIMEOUT": "soon"})
    with pytest.raises(ValueError, match="UTF-8"):
        MCCLConfig.from_env({"MCCL_ROOT": "\udcff"})


def test_each_source_goes_over_the_one_before(monkeypatch, tmp_path):
    file = tmp_path / "mccl.json"
    file.write_text(json.dumps({"port_base": 1000, "chunk_bytes": "8M", "timeout": 5}))
    monkeypatch.setenv("MCCL_CONFIG", str(file))
    monkeypatch.setenv("MCCL_PORT_BASE", "2000")
    monkeypatch.setenv("MCCL_CHUNK_BYTES", "16M")
    init(port_base=3000)
    resolved = get_config()
    assert resolved.port_base == 3000
    assert resolved.chunk_bytes == 16 << 20
    assert resolved.timeout == 5
    assert resolved.connect_timeout == 60
    assert resolved_settings()["port_base"] == "3000"
    assert set(ROWS) - set(resolved_settings()) <= GIVE_WAY


def test_a_replaceable_default_has_no_text_until_it_is_set(monkeypatch):
    assert set(ROWS) - set(resolved_settings()) == GIVE_WAY
    assert get_config().port_base == 29600
    init(port_base=29600)
    assert resolved_settings()["port_base"] == "29600"
    init(get_config())
    assert set(ROWS) - set(resolved_settings()) == {"chunk_bytes"}
    init()
    monkeypatch.setenv("MCCL_CHUNK_BYTES", "4M")
    assert set(ROWS) - set(resolved_settings()) == {"port_base"}


def test_init_warns_while_there_are_groups(monkeypatch, recwarn):
    groups = []
    monkeypatch.setattr(config, "_keepers", {})
    config.warn_while(lambda: bool(groups), "the groups of a test")
    init(port_base=1000)
    assert not recwarn
    groups.append("one")
    with pytest.warns(RuntimeWarning, match="too late for the groups of a test: ") as said:
        init(port_base=2000)
    assert said[0].filename == __file__
    assert get_config().port_base == 2000, "groups made from now on have it"
    groups.clear()
    init()
    assert not recwarn


def test_a_faulty_file_is_named(monkeypatch, tmp_path):
    file = tmp_path / "mccl.json"
    file.write_bytes(b'{"port_base": 1,\n  oops')
    monkeypatch.setenv("MCCL_CONFIG", str(file))
    with pytest.raises(ValueError, match=r"mccl\.json, line 2, column 3: expected a JSON object"):
        get_config()


def test_init_leaves_the_environment_alone(monkeypatch):
    monkeypatch.setenv("MCCL_PORT_BASE", "2000")
    before = dict(os.environ)
    init(compression="fp16", job_key="hush")
    assert dict(os.environ) == before
    assert get_config().port_base == 2000
    init(MCCLConfig(compression="fp16"))
    assert get_config().port_base == 2000
    init(MCCLConfig(port_base=29600))
    assert get_config().port_base == 29600


def test_init_takes_a_config_a_dictionary_and_keywords():
    init(MCCLConfig(port_base=1000, rank=1), port_base=2000)
    assert (get_config().port_base, get_config().rank) == (2000, 1)
    init({"port_base": 3000})
    assert (get_config().port_base, get_config().rank) == (3000, -1)
    init({"port_base": 3000}, port_base=None)
    assert get_config().port_base == 3000
    init()
    assert get_config() == MCCLConfig()
    with pytest.raises(TypeError, match="expected a MCCLConfig"):
        init("transport=tcp")


def test_init_keeps_its_own_copy():
    mine = MCCLConfig(port_base=1000)
    init(mine)
    mine.port_base = 2000
    assert get_config().port_base == 1000


def test_a_refused_init_changes_nothing(monkeypatch):
    init(port_base=1000)
    with pytest.raises(ValueError):
        init(port_base=-1)
    with monkeypatch.context() as context:
        context.setenv("MCCL_PORTBASE", "1")
        with pytest.raises(ValueError, match="did you mean MCCL_PORT_BASE"):
            init(port_base=2000)
    assert get_config().port_base == 1000


def test_tables_and_warnings():
    texts = {**resolved_settings(), "job_key": "hush, hush, hush", "transport": "rdma"}
    assert "hush" not in _core.config_table(texts)
    assert _core.config_warnings(texts) == []
    (short,) = _core.config_warnings(texts | {"job_key": "hush"})
    assert "MCCL_JOB_KEY has 4 characters" in short


def test_the_page_of_settings_has_the_table():
    text = (ROOT / "docs/settings.md").read_text()
    script = runpy.run_path(str(ROOT / "scripts" / "settings_table.py"))
    assert script["renewed"](text, settings_markdown()) == text, (
        "run scripts/settings_table.py docs/settings.md"
    )


def test_settings_table_renews_a_file_between_its_markers(tmp_path):
    renewed = runpy.run_path(str(ROOT / "scripts" / "settings_table.py"))["renewed"]
    text = "a\n<!-- settings:begin -->\nold\n<!-- settings:end -->\nb\n"
    assert renewed(text, "new\n") == text.replace("old", "new")
    for broken in ("", text * 2, "<!-- settings:end --> <!-- settings:begin -->\n"):
        with pytest.raises(ValueError):
            renewed(broken, "new\n")
