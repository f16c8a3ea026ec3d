"""The sims of a new run: the product of parameters, or those of a file, each under a name that tells it from the others."""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

NAME_MAX: Final = 200
"""Characters of a sim's name, the API's limit."""

Sim = dict[str, Any]


def product(params: Sequence[str]) -> list[Sim]:
    """One sim for each combination of the values of `params`, each `NAME=VALUE,VALUE` or `NAME=@FILE`.

    A file has one value a line; blank lines and lines that begin with `#` are left out. Raises click.ClickException.
    """
    axes: dict[str, list[Any]] = {}
    for text in params:
        name, equals, values = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--param {text}: write NAME=VALUE,VALUE or NAME=@FILE")
        if name in axes:
            raise click.UsageError(f"--param {name} is given twice")
        axes[name] = [_value(value) for value in _distinct(name, _texts(name, values))]
    return named([{"params": dict(zip(axes, values, strict=True))} for values in itertools.product(*axes.values())])


def of_file(path: Path) -> list[Sim]:
    """The sims of a YAML or JSON file: a list, or an object with `sims`, each `{name?, params?}`.

    Raises click.ClickException.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path}: {' '.join(str(error).split())}") from None
    sims = found.get("sims") if isinstance(found, dict) else found
    if not isinstance(sims, list) or not sims or not all(isinstance(sim, dict) for sim in sims):
        raise click.ClickException(f"{path}: no list of sims, each {{name?, params?}}")
    unknown = sorted({str(key) for sim in sims for key in sim} - {"name", "params"})
    if unknown:
        raise click.ClickException(f"{path}: a sim has name and params, not {unknown[0]}")
    for position, sim in enumerate(sims):
        if not isinstance(sim.get("params", {}), dict):
            raise click.ClickException(f"{path}: sim {position}: params is no object of names and values")
        try:
            json.dumps(sim, allow_nan=False)
        except (TypeError, ValueError) as error:  # YAML has dates and .nan, the API has not
            raise click.ClickException(f"{path}: sim {position}: {error}; put quotes around it") from None
    return named(sims)


def named(sims: Sequence[Sim]) -> list[Sim]:
    """`sims`, those without a name named by the parameters that vary among all of them: `l2=6 trace=gemm`.

    Of values that are paths only as many last parts are shown as tell them apart. Where nothing varies, all parameters
    make the name; a sim without parameters gets none, and the server numbers it.
    """
    every: dict[str, dict[str, Any]] = {}
    for sim in sims:
        for name, value in sim.get("params", {}).items():
            every.setdefault(name, {})[_key(value)] = value
    varying = {
        name
        for name, values in every.items()
        if len(values) > 1 or any(name not in sim.get("params", {}) for sim in sims)
    }
    shown = {name: _short(values) for name, values in every.items() if name in varying or not varying}
    made = []
    for sim in sims:
        words = [f"{name}={shown[name][_key(value)]}" for name, value in sim.get("params", {}).items() if name in shown]
        made.append({"name": " ".join(words)[:NAME_MAX], **sim} if words else sim)
    return made


def _texts(name: str, values: str) -> list[str]:
    """The values as written, none of them empty."""
    if values.startswith("@"):
        try:
            lines = Path(values[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"{values[1:]}: {getattr(error, 'strerror', None) or error}") from None
        texts = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
        if not texts:
            raise click.UsageError(f"--param {name}: {values[1:]} has no value")
        return texts
    texts = [value.strip() for value in values.split(",")]
    if texts == [""]:
        raise click.UsageError(f"--param {name} has no value: write {name}=VALUE,VALUE or {name}=@FILE")
    if "" in texts:
        raise click.UsageError(f"--param {name}={values}: value {texts.index('') + 1} is empty")
    return texts


def _distinct(name: str, texts: Iterable[str]) -> list[str]:
    """`texts`. Refuses a value that comes twice, which would be two sims of one kind under one name."""
    seen: dict[str, None] = {}
    for text in texts:
        if text in seen:
            raise click.UsageError(f"--param {name}: {text} comes twice")
        seen[text] = None
    return list(seen)


def _value(text: str) -> Any:
    """A number where the text is one, as in JSON; else text."""
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,15})?", text):
        return json.loads(text)
    return {"true": True, "false": False}.get(text, text)


def _key(value: Any) -> str:
    # As JSON, since True == 1 and 1 == 1.0 in Python.
    return json.dumps(value, sort_keys=True)


def _short(values: dict[str, Any]) -> dict[str, str]:
    """How each value is shown, by its key: a path by its fewest last parts with which all values differ."""
    whole = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    paths = {key: [part for part in text.split("/") if part] for key, text in whole.items() if "/" in text}
    for parts in range(1, max(map(len, paths.values()), default=0)):
        shown = whole | {key: "/".join(path[-parts:]) for key, path in paths.items() if path}
        if len(set(shown.values())) == len(shown):
            return shown
    return whole
