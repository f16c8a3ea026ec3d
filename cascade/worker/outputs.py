"""The files a simulator wrote in its work folder, under names the server takes."""

import gzip
import hashlib
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cascade.client import FILE_MAX_BYTES, Client, Conflict, NotCascade, Rejected, TooLarge

LOG_NAME: Final = "accelsim.log.gz"
_NAME_MAX: Final = 128
_SUFFIX_MAX: Final = 32
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")
_TOLD_MAX: Final = 20
_PROBLEM_MAX: Final = 200


def find(work: Path) -> Iterator[tuple[Path, str | None]]:
    """Each entry below `work` that is no folder, and why it can't be sent; None when it can."""
    for path in sorted(work.rglob("*")):
        try:
            kind = path.lstat().st_mode
            if stat.S_ISDIR(kind):
                continue
            if stat.S_ISLNK(kind):
                inside = path.resolve(strict=True).is_relative_to(work.resolve())
                if path.is_dir():
                    continue
                yield path, None if inside and path.is_file() else "is a link to outside the work folder"
            else:
                yield path, None if stat.S_ISREG(kind) else "is no file"
        except (OSError, RuntimeError) as error:
            yield path, f"can't be read ({getattr(error, 'strerror', None) or error})"


def fit(relative: str, taken: set[str], more: str = "") -> str:
    """A name that the server takes and nothing else has; the same for the same files each time.

    Args:
        relative: The file's path in the work folder.
        taken: Names that are given away; this one is added.
        more: What the name has at its end besides, such as `.gz`.
    """
    flat = _UNFIT.sub("_", relative.replace("/", "."))
    name = flat + more
    tries = 0
    while (
        name in ("", ".", "..", LOG_NAME) or name in taken or len(name) > _NAME_MAX or (flat != relative and not tries)
    ):
        # What was changed could be another file's own name, so it gets a mark of what it was.
        name = _marked(flat + more, f"{relative}\0{tries}" if tries else relative)
        tries += 1
    taken.add(name)
    return name


def _marked(name: str, of: str) -> str:
    mark = hashlib.sha256(of.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    plain = name.strip(".") or "file"
    stem, _, suffix = plain.rpartition(".")
    if not stem or len(suffix) > _SUFFIX_MAX:
        return f"{plain[: _NAME_MAX - 9]}-{mark}"
    return f"{stem[: _NAME_MAX - 10 - len(suffix)]}-{mark}.{suffix}"


def compress(source: Path, target: Path) -> Path:
    """`source` as gzip at `target`, the same bytes each time."""
    with source.open("rb") as plain, target.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        shutil.copyfileobj(plain, packed, 1024 * 1024)
    return target


class Outputs:
    """Sends a sim's files; what can't be sent is told in `problems` and stops nothing.

    Args:
        scratch: A folder for compressed copies.
    """

    def __init__(self, client: Client, sim_id: str, scratch: Path) -> None:
        self._client = client
        self._sim_id = sim_id
        self._scratch = scratch
        self.problems: list[str] = []

    def send_all(self, work: Path) -> None:
        """Every file below `work`. Raises NotFound, Unauthorized, Unavailable and NotCascade: the rest can't be sent either."""
        taken: set[str] = set()
        for path, problem in find(work) if work.is_dir() else ():
            relative = str(path.relative_to(work))
            if problem:
                self.problems.append(f"{relative} {problem}")
            else:
                self._send(path, relative, taken)

    def send_log(self, log: Path) -> None:
        """The simulator's whole output, bytes as they were. Raises as `send_all`."""
        with self.noting(LOG_NAME):
            if log.exists():
                self._client.upload_file(self._sim_id, LOG_NAME, compress(log, self._scratch / LOG_NAME))

    def _send(self, path: Path, relative: str, taken: set[str]) -> None:
        with self.noting(relative):
            if path.stat().st_size <= FILE_MAX_BYTES:
                self._client.upload_file(self._sim_id, fit(relative, taken), path)
                return
            packed = self._scratch / "packed.gz"
            try:
                self._client.upload_file(self._sim_id, fit(relative, taken, ".gz"), compress(path, packed))
            finally:
                packed.unlink(missing_ok=True)

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """What is refused in here, or can't be read, is a problem of `what` alone. Raises as `send_all`."""
        try:
            yield
        except (TooLarge, Rejected, Conflict, NotCascade) as error:
            if isinstance(error, NotCascade):
                self._client.health()  # raises too, when it is not this alone that does not get through
            self.problems.append(f"{what}: {str(error)[:_PROBLEM_MAX]}")
        except OSError as error:
            self.problems.append(f"{what} can't be read ({error.strerror or error})")

    def told(self) -> str | None:
        """The problems as part of a reason."""
        if not self.problems:
            return None
        more = f" and {len(self.problems) - _TOLD_MAX} more" if len(self.problems) > _TOLD_MAX else ""
        return f"not sent: {'; '.join(self.problems[:_TOLD_MAX])}{more}"
