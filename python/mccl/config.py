"""The settings of MCCL: the class MCCLConfig, and init(), which sets them for this process.

The table in the C++ library defines names, types, ranges and defaults, and checks every value.
Python, C++ and the environment therefore always agree.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import operator
import os
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mccl import _core

SettingValue = bool | int | float | str

_ROWS: dict[str, dict[str, Any]] = {row["name"]: row for row in _core.settings()}
_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "integer": int,
    "bytes": int,
    "number": float,
    "text": str,
    "choice": str,
}


def _type_of(name: str) -> type:
    return _PYTHON_TYPES[_ROWS[name]["type"]]


def _is_secret(name: str) -> bool:
    """Returns whether the setting is secret. An empty secret counts as not given."""
    return _ROWS[name]["secret"]


def _to_text(name: str, value: object) -> str:
    """Returns the value as text for the library. Raises ValueError if its type is wrong."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return _utf8(name, value)
    kind = _type_of(name)
    if isinstance(value, bool) and kind is bool:
        return "true" if value else "false"
    if kind in (bool, int, float) and not isinstance(value, bool):
        if hasattr(value, "__index__"):
            return str(operator.index(value))
        if kind is float and isinstance(value, numbers.Real):
            return repr(float(value))
    found = type(value).__name__
    if not _ROWS[name]["secret"]:
        found += f" {value!r:.60}"
    expected = "str" if kind is str else f"{kind.__name__} or str"
    if "comma-separated" in _ROWS[name]["range"]:
        expected += ", several separated by commas"
    raise ValueError(f"{name}: expected {expected}; found {found}")


def _utf8(label: str, text: str) -> str:
    """Returns `text`. Raises ValueError if it cannot be encoded as UTF-8."""
    try:
        (label + text).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{label!a}: expected text in UTF-8") from None
    return text


def _from_text(name: str, text: str) -> SettingValue:
    kind = _type_of(name)
    return text == "true" if kind is bool else kind(text)


def _check_name(name: object) -> str:
    """Returns `name` if it is a setting; otherwise raises ValueError with the nearest name."""
    if not isinstance(name, str):
        raise ValueError(f"expected the name of a setting; found {name!r:.60}")
    if name not in _ROWS:
        for row in _ROWS.values():
            if row["variable"] == name:
                raise ValueError(
                    f"{name} is an environment variable; use the name of its setting, {row['name']}"
                )
        _core.config_from_dict({}, {name: ""})  # raises ValueError with the nearest name
    return name


class _FieldsForDataclasses:
    """Makes the functions of the module dataclasses work on MCCLConfig and its instances.

    An instance lists only the settings that were given. dataclasses.replace() copies all listed
    fields, so settings that the environment decides would otherwise become given settings.
    """

    def __init__(self, fields: dict[str, dataclasses.Field[Any]]) -> None:
        self.fields = fields

    def __get__(self, config: MCCLConfig | None, owner: type) -> dict[str, dataclasses.Field[Any]]:
        if config is None:
            return self.fields
        return {name: self.fields[name] for name in config._given}


class _Field:
    """Descriptor of one setting: checks assigned values; an unassigned setting has its default."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.name: str = row["name"]
        self.default = _from_text(self.name, row["default"])
        self.__doc__ = f"{row['meaning']} ({row['range']}; default {self.default!r})."

    def __get__(self, config: MCCLConfig | None, owner: type) -> Any:
        return self if config is None else config._given.get(self.name, self.default)

    def __set__(self, config: MCCLConfig, value: object) -> None:
        if value is None:
            config._given.pop(self.name, None)
            return
        texts = _core.config_from_dict({}, {self.name: _to_text(self.name, value)})
        config._given[self.name] = _from_text(self.name, texts[self.name])

    def __delete__(self, config: MCCLConfig) -> None:
        config._given.pop(self.name, None)


class MCCLConfig:
    """Settings, each of which either is given or has its default.

    Every setting is an attribute and a keyword, named as its variable in docs/settings.md, in lower
    case and without MCCL_. init() applies the given settings and takes the others from the
    environment. None counts as not given. Two configurations are equal if all their values are
    equal, given or not.
    dataclasses.replace() and copy.replace() preserve which settings were given;
    dataclasses.asdict() returns the given settings.

    Raises:
        ValueError: a name is not a setting (the message contains the nearest name), or a value is
            invalid.
    """

    _given: dict[str, SettingValue]

    def __init__(self, **settings: SettingValue | os.PathLike[str] | None) -> None:
        object.__setattr__(self, "_given", {})
        for name, value in settings.items():
            setattr(self, _check_name(name), value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _ROWS:
            try:
                _check_name(name)
            except ValueError as error:
                raise AttributeError(str(error)) from None
        object.__setattr__(self, name, value)

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> MCCLConfig:
        """All settings of an environment.

        Args:
            env: The environment; by default, os.environ.

        Returns:
            The defaults, overridden by the file that MCCL_CONFIG names, which the MCCL_* variables
            override. All settings count as given, except for a job key that is not set.
        """
        return cls._of_texts(_core.config_from_environment(_mccl_variables(env)))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> MCCLConfig:
        """Returns a configuration in which exactly the settings of a dictionary are given."""
        return cls(**{_check_name(name): value for name, value in settings.items()})

    @classmethod
    def _of_texts(cls, texts: Mapping[str, str]) -> MCCLConfig:
        config = cls()
        config._given.update(
            {
                name: _from_text(name, text)
                for name, text in texts.items()
                if text or not _is_secret(name)
            }
        )
        return config

    @property
    def given(self) -> dict[str, SettingValue]:
        """A copy of the given settings, by name."""
        return dict(self._given)

    def to_dict(self) -> dict[str, SettingValue]:
        """Every setting with its value, given or not. Includes the job key if there is one."""
        values = {name: getattr(self, name) for name in _ROWS}
        return {name: value for name, value in values.items() if value or not _is_secret(name)}

    def to_env(self) -> dict[str, str]:
        """The given settings as MCCL_* variables, including the job key.

        Adding them to an environment does not change its other settings.
        """
        return {_ROWS[name]["variable"]: text for name, text in self._texts().items()}

    def _texts(self) -> dict[str, str]:
        """The given settings, as text for the library."""
        return {name: _to_text(name, value) for name, value in self._given.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MCCLConfig):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        """Shows only values that differ from the defaults; the job key is masked."""
        fields = ", ".join(
            f"{name}={'(set)' if _ROWS[name]['secret'] else repr(value)}"
            for name, value in self.to_dict().items()
            if value != type(self).__dict__[name].default
        )
        return f"MCCLConfig({fields})"

    def __replace__(self, /, **settings: SettingValue | os.PathLike[str] | None) -> MCCLConfig:
        """Implements copy.replace()."""
        return MCCLConfig(**{**self.given, **settings})

    def __reduce__(self) -> tuple[Any, ...]:
        return MCCLConfig.from_dict, (self.given,)


for _name, _row in _ROWS.items():
    setattr(MCCLConfig, _name, _Field(_row))
    MCCLConfig.__annotations__[_name] = _type_of(_name).__name__
_like = dataclasses.make_dataclass(
    "MCCLConfig",
    [(name, _type_of(name), MCCLConfig.__dict__[name].default) for name in _ROWS],
    repr=False,
    eq=False,
    kw_only=True,
)
MCCLConfig.__dataclass_fields__ = _FieldsForDataclasses(  # type: ignore[attr-defined]
    _like.__dataclass_fields__
)
MCCLConfig.__dataclass_params__ = _like.__dataclass_params__  # type: ignore[attr-defined]
MCCLConfig.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # for help()
    [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=MCCLConfig.__dict__[name].default,
            annotation=_type_of(name),
        )
        for name in _ROWS
    ]
)

_overrides = MCCLConfig()
_revision = 0

#: Functions that return whether a framework has groups, which keep the settings with which they
#: were made. The keys name the groups in init()'s warning.
_keepers: dict[str, Callable[[], bool]] = {}


def warn_while(exists: Callable[[], bool], what: str) -> None:
    """Makes init() warn that it was called too late if `exists()`; `what` names the groups."""
    _keepers[what] = exists


def _mccl_variables(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the variables that the library reads from an environment."""
    environment = os.environ if env is None else env
    variables = {name: value for name, value in environment.items() if name.startswith("MCCL_")}
    if "MASTER_PORT" in environment:
        variables["MASTER_PORT"] = environment["MASTER_PORT"]
    return {name: _utf8(name, value) for name, value in variables.items()}


def _resolve(overrides: MCCLConfig) -> dict[str, str]:
    environment = _core.config_from_environment(_mccl_variables())
    return _core.config_from_dict(environment, overrides._texts())


def init(
    config: MCCLConfig | Mapping[str, Any] | None = None,
    /,
    **settings: SettingValue | os.PathLike[str] | None,
) -> None:
    """Sets settings for this process; they override the settings of the environment.

    Call init() before the first group is made. Groups keep the settings of their creation, so
    init() warns if a group exists. A second call replaces the settings of the first.

    Args:
        config: A MCCLConfig, of which only given settings count, or a dictionary of settings.
        **settings: Settings by name; they override `config`. None means not given.

    Raises:
        ValueError: a setting here or in the environment is invalid; nothing has changed.
        TypeError: `config` is neither a MCCLConfig nor a mapping.
    """
    global _overrides, _revision
    if config is None:
        config = MCCLConfig()
    elif isinstance(config, Mapping):
        config = MCCLConfig.from_dict(config)
    elif not isinstance(config, MCCLConfig):
        raise TypeError(
            f"init: expected a MCCLConfig, a dictionary or keywords; found {type(config).__name__}"
        )
    keywords = {name: value for name, value in settings.items() if value is not None}
    overrides = MCCLConfig(**{**config.given, **keywords})
    _resolve(overrides)
    _overrides = overrides
    _revision += 1
    late = [what for what, exists in _keepers.items() if exists()]
    if late:
        warnings.warn(
            f"mccl.init() was called too late for {' and '.join(late)}: existing groups keep their "
            "settings. Call mccl.init() before these groups are made",
            RuntimeWarning,
            stacklevel=2,
        )


def get_config() -> MCCLConfig:
    """The settings that a group created now would have.

    These are the defaults, overridden by the file of MCCL_CONFIG, the MCCL_* variables and init(),
    in this order.
    """
    return MCCLConfig._of_texts(resolved_settings())


def resolved_settings() -> dict[str, str]:
    """Returns the settings of get_config() as text by name, in the form of Config::set.

    Omits the port and the message size if they were not set, because included settings count as
    given. MCCL may replace their defaults: another job may use the port, and the best message size
    depends on the network.
    """
    return _resolve(_overrides)


def revision() -> int:
    """Returns a number that changes with each init(), which invalidates caches of the settings."""
    return _revision


def default_text(name: str) -> str:
    """The default of a setting, as text in the form of resolved_settings()."""
    return _ROWS[name]["default"]


def texts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The given settings, as text by name in the form of resolved_settings().

    Raises:
        ValueError: a name is not a setting, or a value is invalid.
    """
    texts = _core.config_from_dict({}, MCCLConfig.from_dict(settings)._texts())
    return {name: texts[name] for name in settings}


def settings_markdown() -> str:
    """The table of docs/settings.md."""
    return _core.settings_markdown()
