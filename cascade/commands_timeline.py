"""The commands of step timing: `simulate`, `compare`, `timeline import`, `timeline show` and `timeline send`."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade.commands import connected
from cascade.words import counted

if TYPE_CHECKING:
    from cascade.client import Client
    from cascade.timeline.kernel_times import KernelTimes
    from cascade.timeline.model import (
        Compare,
        Coverage,
        CoverageSummary,
        ErrorStats,
        Kind,
        RealTimeline,
        SimulatedTimeline,
    )

# The packages behind these commands take a quarter of a second to import, so each command imports what it runs.

# No `exists=True`: a file that cannot be read is one line and exit code 1, like a file that is wrong.
_FILE = click.Path(path_type=Path)


_OUTPUT_HELP = "File to write; - for standard output."


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Errors of the input become one line on standard error and exit code 1."""
    from cascade.timeline.model import TimelineError

    try:
        yield
    except TimelineError as error:
        raise click.ClickException(" ".join(str(error).split())) from error


@contextmanager
def _progress(path: Path, label: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while `path` is read, when that is a terminal. Gives what is to be called with the bytes read."""
    if not sys.stderr.isatty() or not path.is_file():
        yield lambda read: None
        return
    with click.progressbar(length=path.stat().st_size, label=label, file=sys.stderr) as bar:
        yield lambda read: bar.update(read - bar.pos)


def _write(output: Path, data: bytes, words: Sequence[str]) -> None:
    """Write the result, and say `words` where they do not mix with it."""
    to_stdout = str(output) == "-"
    if to_stdout:
        click.echo(data, nl=False)
    else:
        try:
            output.write_bytes(data)
        except OSError as error:
            raise click.ClickException(f"{output}: {error.strerror or error}") from error
    for line in words:
        click.echo(line, err=to_stdout)


@click.command(
    short_help="Time steps with simulated kernels.",
    epilog="\b\nExample: cascade simulate --timeline real_timeline.json --log accelsim.log -o simulated_timeline.json",
)
@click.option("--timeline", "timeline_path", type=_FILE, required=True, help="The measured timeline.")
@click.option("--log", "log_path", type=_FILE, help="Log of Accel-Sim or GPGPU-Sim, plain or .gz.")
@click.option(
    "--sim",
    "sim_id",
    help="Id of a sim on the server at $CASCADE_URL, with the token in $CASCADE_TOKEN. Default: the server on this machine.",
)
@click.option("--kernels", "map_path", type=_FILE, help='Kernel times: [{"name": ..., "launch_uid"?: ..., "ns": ...}].')
@click.option(
    "--clock-mhz",
    type=click.FloatRange(min=0, min_open=True),
    help="Core clock that the cycles count. Default: the one in the log's header.",
)
@click.option(
    "-o", "--output", type=_FILE, default=Path("simulated_timeline.json"), show_default=True, help=_OUTPUT_HELP
)
def simulate(
    timeline_path: Path,
    log_path: Path | None,
    sim_id: str | None,
    map_path: Path | None,
    clock_mhz: float | None,
    output: Path,
) -> None:
    """Say how long each step and request of a measured timeline would take if its kernels took the simulated time.

    Kernel times come from exactly one of --log, --sim and --kernels. Kernels without one keep their measured time and
    count as unmodeled; the summary says how much of the GPU time is covered.
    """
    from cascade.timeline import model
    from cascade.timeline.simulate import simulate as run

    if sum(source is not None for source in (log_path, sim_id, map_path)) != 1:
        raise click.UsageError("Give exactly one of --log, --sim and --kernels.")
    if clock_mhz is not None and not clock_mhz < float("inf"):
        raise click.BadParameter("is not a clock", param_hint="--clock-mhz")
    if clock_mhz is not None and map_path is not None:
        raise click.UsageError("--clock-mhz goes with --log or --sim: the times of --kernels are nanoseconds.")
    with _one_line_errors():
        timeline = model.read(timeline_path, model.RealTimeline)
        times = _kernel_times(log_path, sim_id, map_path, clock_mhz)
        try:
            simulated = run(timeline, times)
        except model.TimelineError as error:
            raise model.TimelineError(f"{timeline_path}: {error}") from error
    words = _simulate_words(output, simulated)
    if str(output) != "-":
        words.append(f"next: {_line('cascade compare', output, timeline_path)}")
        words.append(
            f"to show it on the page: {_line('cascade timeline send', sim_id or 'SIM', '--simulated', output)}"
        )
    _write(output, model.dump(simulated), words)


@click.command(
    short_help="Compare simulated steps with the real ones.",
    epilog="\b\nExample: cascade compare simulated_timeline.json real_timeline.json -o compare.json",
)
@click.argument("simulated_path", metavar="SIMULATED", type=_FILE)
@click.argument("real_path", metavar="REAL", type=_FILE)
@click.option("-o", "--output", type=_FILE, default=Path("compare.json"), show_default=True, help=_OUTPUT_HELP)
def compare(simulated_path: Path, real_path: Path, output: Path) -> None:
    """Say how far the simulated steps and requests in SIMULATED are from those in REAL.

    Errors are simulated minus real. Read them beside the coverage: what was not simulated kept its measured time and
    so adds no error.
    """
    from cascade.timeline import model
    from cascade.timeline.compare import compare as run

    with _one_line_errors():
        simulated = model.read(simulated_path, model.SimulatedTimeline)
        real = model.read(real_path, model.RealTimeline)
        try:
            result = run(simulated, real)
        except model.TimelineError as error:
            raise model.TimelineError(f"{simulated_path}: {error}") from error
    words = _compare_words(output, result, simulated.summary.simulation.notes)
    if "-" not in (str(output), str(simulated_path)):
        line = _line("cascade timeline send SIM --simulated", simulated_path, "--compare", output)
        words.append(f"to show both on the page: {line}")
    _write(output, model.dump(result), words)


@click.group()
def timeline() -> None:
    """Make measured timelines from profiler traces, look at them, and send what was computed."""


@timeline.command(
    "import",
    short_help="Make a timeline from a profiler trace.",
    epilog="\b\nExample: cascade timeline import trace.json.gz --step-range '^(prefill|decode)' --kind-of '^decode=decode'",
)
@click.argument("trace", type=_FILE)
@click.option("-o", "--output", type=_FILE, default=Path("real_timeline.json"), show_default=True, help=_OUTPUT_HELP)
@click.option(
    "--step-range", metavar="REGEX", help="Ranges that are steps. Default: ProfilerStep#, else the outermost."
)
@click.option(
    "--kind-of",
    metavar="REGEX=KIND",
    multiple=True,
    help="Kind of the steps whose name matches: prefill, decode, mixed or other. May be given again; the first counts.",
)
@click.option("--device", type=int, help="The GPU, when the trace has several. Default: the one with the most kernels.")
@click.option(
    "--renumber",
    is_flag=True,
    help="Number the launches from 1 in these steps alone: for a simulator that runs no others.",
)
def import_(
    trace: Path, output: Path, step_range: str | None, kind_of: tuple[str, ...], device: int | None, renumber: bool
) -> None:
    """Make real_timeline.json from TRACE, and report what was dropped, clamped, guessed or only counted.

    TRACE is a PyTorch profiler (kineto) trace, .json or .json.gz, or an Nsight Systems export made by
    `nsys export --type sqlite`. Its steps are host ranges; a kernel belongs to the step that launched it.
    """
    from cascade.timeline import model
    from cascade.timeline.importing import import_trace

    if step_range is not None:
        _checked_regex(step_range, "--step-range")
    kinds = [_kind_rule(rule) for rule in kind_of]
    with _one_line_errors(), _progress(trace, "reading") as progress:
        real, report = import_trace(trace, step_range, kinds, device, progress, renumber)
    _write(output, model.dump(real), report.lines())


@timeline.command(
    short_help="Print a timeline's steps and draw it.",
    epilog="\b\nExample: cascade timeline show real_timeline.json -o timeline.svg",
)
@click.argument("path", metavar="TIMELINE", type=_FILE)
@click.option(
    "-o",
    "--output",
    type=_FILE,
    default=Path("timeline.svg"),
    show_default=True,
    help="Picture to write, an .svg file.",
)
def show(path: Path, output: Path) -> None:
    """Print the steps of TIMELINE, a real_timeline.json, and draw its kernels and the gaps between them as a picture."""
    from cascade.timeline import model
    from cascade.timeline.picture import draw

    if output.suffix.lower() != ".svg":
        raise click.BadParameter("the picture is drawn as .svg", param_hint="-o")
    with _one_line_errors():
        real = model.read(path, model.RealTimeline)
    picture = draw(real).encode()
    _write(output, picture, [*_steps_words(real), f"picture: {output}"])


@timeline.command(
    short_help="Send step timing to a sim.",
    epilog=(
        "\b\nExample: cascade timeline send sim-6b4c91e71437 --simulated simulated_timeline.json --compare compare.json\n\n"
        "`cascade worker` does this by itself for a trace that has a real_timeline.json."
    ),
)
@click.argument("sim_id", metavar="SIM")
@click.option("--simulated", "simulated_path", type=_FILE, required=True, help="What cascade simulate wrote.")
@click.option("--compare", "compare_path", type=_FILE, help="What cascade compare wrote.")
@connected
def send(client: "Client", sim_id: str, simulated_path: Path, compare_path: Path | None) -> None:
    """Send step timing to SIM, where the page shows it. It replaces what was sent before."""
    from cascade.timeline import model

    with _one_line_errors():
        simulated = model.read(simulated_path, model.SimulatedTimeline)
        if compare_path is not None:
            model.read(compare_path, model.Compare)
    # The files as they are: they may hold more than the models know.
    client.send_step_timeline(sim_id, _json(simulated_path), None if compare_path is None else _json(compare_path))
    click.echo(f"{sim_id}: {counted(len(simulated.steps), 'step')} sent; {client.url}/#/sims/{sim_id}?tab=timing")


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def _line(command: str, *arguments: object) -> str:
    """A command line to be copied."""
    return " ".join([command, *(shlex.quote(str(argument)) for argument in arguments)])


def _kernel_times(
    log_path: Path | None, sim_id: str | None, map_path: Path | None, clock_mhz: float | None
) -> "KernelTimes":
    from cascade.timeline.kernel_times import from_map
    from cascade.timeline.model import TimelineError

    if log_path is not None:
        from cascade.timeline.simulator import times_of_log

        with _progress(log_path, "reading") as progress:
            return times_of_log(log_path, clock_mhz, progress)
    if map_path is not None:
        try:
            return from_map(map_path.read_bytes(), str(map_path))
        except OSError as error:
            raise TimelineError(f"{map_path}: {error.strerror or error}") from error
    return _times_of_sim(sim_id or "", clock_mhz)


def _times_of_sim(sim_id: str, clock_mhz: float | None) -> "KernelTimes":
    from cascade.local import default_token, default_url, token_file
    from cascade.timeline.simulator import times_of_sim

    url = default_url()
    token = default_token(url)
    if not token:
        raise click.UsageError(
            f"--sim needs the server's token in CASCADE_TOKEN; a server on this machine keeps it in {token_file()}."
        )
    return times_of_sim(url, token, sim_id, clock_mhz)


def _checked_regex(pattern: str, option: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a regular expression: {error}", param_hint=option) from error
    return pattern


def _kind_rule(rule: str) -> "tuple[str, Kind]":
    from cascade.timeline.model import KINDS

    pattern, equals, word = rule.rpartition("=")
    for kind in KINDS:
        if equals and kind == word:
            return _checked_regex(pattern, "--kind-of"), kind
    raise click.BadParameter(f"{rule!r} is not REGEX=KIND with KIND one of {', '.join(KINDS)}", param_hint="--kind-of")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def _coverage_words(coverage: "Coverage") -> str:
    via = f" ({coverage.via_kernels:,} of them by another of the same name and shape)" if coverage.via_kernels else ""
    return (
        f"coverage: {coverage.simulated_kernels:,} of {counted(coverage.kernels, 'kernel')} simulated{via}, "
        f"{_share(coverage.gpu_time_fraction)} of the GPU time"
    )


def _overlap_words(notes: Mapping[str, int]) -> list[str]:
    """That a coverage may be full of times which are no kernel's own."""
    from cascade.timeline.kernel_times import OVERLAPPED

    count = notes.get(OVERLAPPED, 0)
    if not count:
        return []
    return [
        f"warning: {count:,} of these kernels {'has' if count == 1 else 'have'} the time of one that overlapped others in "
        "the simulator: from the end of the one before to its own, not its duration. Their sum holds, the single ones do not"
    ]


def _share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _simulate_words(output: Path, simulated: "SimulatedTimeline") -> list[str]:
    from cascade.timeline.kernel_times import OVERLAPPED
    from cascade.timeline.report import show_ns

    simulation = simulated.summary.simulation
    rows = [["kind", "steps", "measured wall", "simulated wall", "change", "measured busy", "simulated busy"]]
    for kind, times in simulated.summary.per_kind.items():
        mine = [step for step in simulated.steps if step.kind == kind]
        wall, busy = sum(step.measured_wall_ns for step in mine), sum(step.measured_gpu_busy_ns for step in mine)
        rows.append(
            [
                kind,
                f"{times.steps:,}",
                show_ns(wall),
                show_ns(times.wall_ns.total),
                _percent(times.wall_ns.total - wall, wall),
                show_ns(busy),
                show_ns(times.gpu_busy_ns.total),
            ]
        )
    sizes = f"{counted(len(simulated.steps), 'step')}, {counted(len(simulated.requests), 'request')}"
    words = [f"{output}: {sizes}", *_table(rows)]
    words.append(_coverage_words(simulation.coverage))
    words += _overlap_words(simulation.notes)
    odd = [row.label for row in simulation.coverage.steps if row.kernel_count_differs]
    if odd:
        words.append(
            f"note: steps with another number of kernels than most of their kind: {len(odd):,}; first: {odd[0]}"
        )
    notes = {name: count for name, count in simulation.notes.items() if name != OVERLAPPED}  # said already
    words += [f"note: {name.replace('_', ' ')}: {count:,}" for name, count in notes.items()]
    return words


def _compare_words(output: Path, result: "Compare", notes: Mapping[str, int]) -> list[str]:
    summary = result.summary
    rows = [["", "count", "mean error", "mean abs", "median abs", "p95 abs", "aggregate abs"]]
    rows.append(_error_row("wall", summary.wall_ns))
    rows.append(_error_row("GPU busy", summary.gpu_busy_ns))
    if summary.covered_gpu_ns is not None:
        rows.append(_error_row("covered kernels", summary.covered_gpu_ns))
    if summary.untraced_wall_ns is not None:
        rows.append(_error_row("wall, untraced", summary.untraced_wall_ns))
    for kind, errors in (summary.per_kind or {}).items():
        rows.append(_error_row(f"{kind} wall", errors.wall_ns))
    if summary.requests is not None and summary.requests.wall_ns.count:
        rows.append(_error_row("request wall", summary.requests.wall_ns))
        rows.append(_error_row("request TTFT", summary.requests.ttft_ns))
        rows.append(_error_row("request TPOT", summary.requests.tpot_ns))
    sizes = f"{counted(len(result.steps), 'step')} and {counted(len(result.requests), 'request')}"
    words = [f"{output}: {sizes} matched", *_table(rows)]
    if summary.coverage is not None:
        words.append(_coverage_beside(summary.coverage))
    words += _overlap_words(notes)
    if summary.unmatched is not None and (summary.unmatched.simulated or summary.unmatched.real):
        unmatched = summary.unmatched
        words.append(f"note: steps without a partner: {unmatched.simulated:,} simulated, {unmatched.real:,} real")
    return words


def _coverage_beside(coverage: "CoverageSummary") -> str:
    return (
        f"coverage: these errors come from simulating {_share(coverage.kernel_fraction)} of the kernels, "
        f"{_share(coverage.gpu_time_fraction)} of the GPU time; the rest kept its measured time"
    )


def _error_row(name: str, stats: "ErrorStats") -> list[str]:
    values = (
        stats.mean_error_pct,
        stats.mean_abs_error_pct,
        stats.p50_abs_error_pct,
        stats.p95_abs_error_pct,
        stats.aggregate_abs_error_pct,
    )
    return [name, f"{stats.count:,}", *("-" if value is None else f"{value:.2f} %" for value in values)]


def _steps_words(real: "RealTimeline") -> list[str]:
    from cascade.timeline.host_model import busy_ns
    from cascade.timeline.picture import gaps
    from cascade.timeline.report import show_ns

    rows = [["step", "wall", "GPU busy", "busy", "kernels", "long gaps", "longest gap"]]
    for step in real.steps:
        busy, idle = busy_ns(step), [end - start for start, end in gaps(step)]
        rows.append(
            [
                f"{step.label}" + (f" {step.name[:40]!r}" if step.name else ""),
                show_ns(step.wall_ns),
                show_ns(busy),
                _percent(busy, step.wall_ns),
                f"{len(step.kernels):,}",
                f"{len(idle):,}",
                show_ns(max(idle, default=0)),
            ]
        )
    gpu = f" on {real.meta.gpu}" if real.meta.gpu else ""
    sizes = f"{counted(len(real.steps), 'step')}, {counted(len(real.requests), 'request')}"
    return [f"{real.meta.run_name}{gpu}: {sizes}", *_table(rows)]
