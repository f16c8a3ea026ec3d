"""The simulator's command: placeholders filled from a sim's params, no shell in between."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any


class CommandError(Exception):
    """The command can't be run; one line for people."""


def names(template: Sequence[str]) -> list[str]:
    """The placeholders of a command, such as `trace` of `{trace}`. `{{` and `}}` stand for braces."""
    found: dict[str, None] = {}
    for argument in template:
        try:
            fields = [field for _, field, _, _ in Formatter().parse(argument) if field is not None]
        except ValueError as error:
            raise CommandError(f"{argument!r}: {error} (write {{{{ and }}}} for braces)") from None
        for field in fields:
            if not field.isidentifier():
                raise CommandError(f"{argument!r}: {{{field}}} is no placeholder (write {{{{ and }}}} for braces)")
            found[field] = None
    return list(found)


def fill(template: Sequence[str], params: Mapping[str, Any], sim_id: str) -> list[str]:
    """The command of one sim: each `{name}` is its param of that name, `{sim}` its id. Raises CommandError."""
    values = {"sim": sim_id, **params}
    missing = [name for name in names(template) if name not in values]
    if missing:
        known = ", ".join(sorted(values))
        raise CommandError(f"{{{missing[0]}}} is no param of {sim_id}, which has {known}")
    for name in names(template):
        if isinstance(values[name], (dict, list)):
            raise CommandError(f"{{{name}}} of {sim_id} is no text or number")
    return [
        "".join(
            text + ("" if field is None else _text(values[field])) for text, field, _, _ in Formatter().parse(argument)
        )
        for argument in template
    ]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def files(paths: Sequence[str], base: Path) -> list[str]:
    """Files for the simulator's folder, absolute. Raises CommandError: there is none, or two have one name."""
    found = [base / path for path in paths]
    for path in found:
        if not _is(path, Path.is_file):
            raise CommandError(f"{path}: no such file to copy")
        if sum(other.name == path.name for other in found) > 1:
            raise CommandError(f"{path}: two files of this name to copy")
    return [str(path) for path in found]


def resolve(argv: Sequence[str], base: Path) -> list[str]:
    """The command as it runs elsewhere: the program found, and what names a file here made absolute.

    The simulator runs in a folder of its own, so `-trace ./traces/gemm` must not change its meaning.
    """
    program = shutil.which(argv[0], path=None) if "/" not in argv[0] else str(base / argv[0])
    if program is None or not _is(Path(program), Path.is_file):
        raise CommandError(f"{argv[0]}: no such program")
    return [
        str(Path(program).absolute()),
        *(str(base / a) if "/" in a and _is(base / a, Path.exists) else a for a in argv[1:]),
    ]


def _is(path: Path, test: Callable[[Path], bool]) -> bool:
    """What `test` says of the path; no when it can't be one at all, as the text of a script: too long, or with a NUL."""
    try:
        return test(path)
    except (OSError, ValueError):
        return False
