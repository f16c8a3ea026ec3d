"""From a profiler's file to a measured timeline, whichever profiler wrote it."""

from collections.abc import Sequence
from pathlib import Path

from cascade.timeline.kineto import GZIP_MAGIC, Progress, read_kineto
from cascade.timeline.model import Kind, RealTimeline, TimelineError
from cascade.timeline.nsys import SQLITE_MAGIC, read_nsys
from cascade.timeline.report import ImportReport
from cascade.timeline.trace import timeline_of


def import_trace(
    path: Path,
    step_range: str | None = None,
    kind_of: Sequence[tuple[str, Kind]] = (),
    device: int | None = None,
    progress: Progress = lambda read: None,
    renumber: bool = False,
) -> tuple[RealTimeline, ImportReport]:
    """The measured timeline of a profiler trace, and the report of what was dropped, clamped, guessed or counted.

    Args:
        path: a PyTorch profiler (kineto) trace, `.json` or `.json.gz`, or an Nsight Systems SQLite export; which of
            them is told from the content.
        step_range: regular expression of the ranges that are steps, searched in their names. By default
            `ProfilerStep#`; see `cascade.timeline.trace.timeline_of` for what happens without those.
        kind_of: (regular expression, kind) pairs, tried in order on a step's name.
        device: the GPU; by default the one with the most kernels.
        progress: called with the bytes of the file read so far.
        renumber: launch uids count the launches of the steps alone, as a simulator that is given no others does.

    Raises:
        TimelineError: the file cannot be used; the message is one line that names it.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise TimelineError(f"{path}: {error.strerror or error}") from error
    if magic == SQLITE_MAGIC:
        trace = read_nsys(path)
    elif magic.startswith(GZIP_MAGIC) or magic.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] in (b"{", b"["):
        trace = read_kineto(path, step_range, progress)
    else:
        raise TimelineError(
            f"{path}: neither a PyTorch profiler trace (.json, .json.gz) nor an SQLite export of Nsight Systems"
            " (made of a .nsys-rep file by `nsys export --type sqlite`)"
        )
    return timeline_of(trace, run_name(path), step_range, kind_of, device, renumber), trace.report


def run_name(path: Path) -> str:
    """The file's name without what only tells its format: `decode.pt.trace.json.gz` is `decode`."""
    name = path.name
    for ending in (".gz", ".json", ".sqlite", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name or path.name
