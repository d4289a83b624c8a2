"""Configuration from TOML: tables into frozen dataclasses, `--set` overrides, and errors that name the nearest key."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from earmark.errors import ConfigError
from earmark.files import read_text

T = TypeVar("T")
NAMES = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", type(None): "nothing"}
"""Types in words."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. Raises `ConfigError` with the line where it is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML ({str(error)[:200]}). Correct that line.") from error


def unknown_key(where: str, key: str, known: Iterable[str]) -> ConfigError:
    """The error for a key that nothing reads, with the nearest one that something does."""
    names = sorted(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}."
    return ConfigError(f"{where}: unknown key {key!r}; {hint}")


def from_table(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """The dataclass with the table's values, checked against its annotations; `int` is taken for `float`.

    Raises `ConfigError` on an unknown key, a value of another type or outside a `Literal`.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {table!r}; expected a table of keys.")
    hints = typing.get_type_hints(cls)
    fields = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in fields:
            raise unknown_key(where, key, fields)
        if not _fits(value, hints[key]):
            raise ConfigError(f"{where}.{key} = {value!r}; expected {_described(hints[key])}.")
    missing = [f.name for f in dataclasses.fields(cls) if f.name not in table and _is_needed(f)]  # type: ignore[arg-type]
    if missing:
        raise ConfigError(f"{where}: no {missing[0]}; expected {_described(hints[missing[0]])}.")
    return cls(**table)


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def override(tables: dict[str, Any], assignment: str) -> None:
    """Carries out one `--set a.b=value` or `a.0.b=value` in place; the value is TOML, or a bare text."""
    path, equals, text = assignment.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {assignment}: expected {path.strip() or 'KEY'}=VALUE.")
    assign(tables, path.strip(), _value(text), f"--set {assignment}")


def assign(tables: dict[str, Any], path: str, value: Any, where: str) -> None:
    """Puts the value at `a.b` or `a.0.b` in place; tables on the way are made, places of lists are not."""
    *parents, last = path.split(".")
    place: Any = tables
    for depth, part in enumerate(parents):
        in_list = isinstance(place, list)
        place = place[_index(where, part, len(place))] if in_list else place.setdefault(part, {})
        if not isinstance(place, dict | list):
            raise ConfigError(f"{where}: {'.'.join(parents[: depth + 1])} is a value, not a table.")
    if isinstance(place, list):
        place[_index(where, last, len(place))] = value
    else:
        place[last] = value


def _index(where: str, part: str, length: int) -> int:
    if not part.isdecimal() or len(part) > 9 or int(part) >= length:
        raise ConfigError(f"{where}: {part!r} is not a place in a list of {length}; counting starts at 0.")
    return int(part)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    for each in _alternatives(hint):
        origin = typing.get_origin(each)
        if origin is Literal:
            if value in typing.get_args(each):
                return True
        elif each is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return True
        elif each is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return True
        elif origin is list:
            if isinstance(value, list) and all(_fits(element, typing.get_args(each)[0]) for element in value):
                return True
        elif each is Any or isinstance(value, origin or each):
            return True
    return False


def _described(hint: Any) -> str:
    parts: list[str] = []
    for each in _alternatives(hint):
        if typing.get_origin(each) is Literal:
            parts.extend(f'"{value}"' for value in typing.get_args(each))
        elif typing.get_origin(each) is list:
            parts.append(f"a list, each {_described(typing.get_args(each)[0])}")
        else:
            parts.append(NAMES.get(each, str(each)))
    return " or ".join(parts)
