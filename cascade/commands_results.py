"""The commands for results: logs, kernels, files, and two runs side by side."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from cascade.commands import as_json, connected
from cascade.kernels import attempts, last_attempt, overlapped, pairs
from cascade.tables import show_json, show_table
from cascade.words import counted

if TYPE_CHECKING:
    from cascade.client import Client
    from chalicelib.models import Kernel, RunDetail, SimSummary

FOLLOW_S = 1.0
_SINCE = "cycles are those since the block before; of a row marked overlapped they are not the kernel's own duration"


@click.command(
    epilog=(
        "\b\nExample: cascade logs sim-6b4c91e71437 -f --tail 20\n\n"
        "\b\nExample: cascade logs sim-6b4c91e71437 --json | jq -r '.lines[]'"
    )
)
@click.argument("sim_id")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the sim has finished.")
@click.option("--tail", type=click.IntRange(1, 10_000), help="Only the last so many lines.")
@click.option(
    "--json", "as_json", is_flag=True, help='JSON, one object a line for each chunk: {"seq": 0, "lines": [...]}.'
)
@connected
def logs(client: "Client", sim_id: str, follow: bool, tail: int | None, as_json: bool) -> None:
    """Print a sim's log."""
    page = client.log_tail(sim_id, tail) if tail else client.read_log(sim_id, 0, 1000)
    while True:
        _print_chunks(page, as_json)
        if page.chunks:
            page = client.read_log(sim_id, page.next_seq, 1000)
            continue
        if not follow or client.show_sim(sim_id).state in ("succeeded", "failed", "cancelled"):
            return
        time.sleep(FOLLOW_S)
        page = client.read_log(sim_id, page.next_seq, 1000)


def _print_chunks(page: Any, as_json: bool) -> None:
    expected = None
    for chunk in page.chunks:
        if expected is not None and chunk.seq != expected:
            click.echo(f"[chunks {expected} to {chunk.seq - 1} have not arrived]", err=True)
        expected = chunk.seq + 1
        if as_json:
            click.echo(chunk.model_dump_json())
            continue
        for line in chunk.lines:
            click.echo(line)


@click.command(
    epilog=(
        "\b\nExample: cascade kernels sim-6b4c91e71437 --csv > kernels.csv\n\n"
        "A kernel's cycles are those since the block before it. Where kernels ran together that is not its own duration: "
        "rows of which the order of uids tells are marked as overlapped, others may have. Where the simulator was started "
        "again, there is a column that says which attempt a kernel is of; only the last one counts."
    )
)
@click.argument("sim_id")
@click.option("--csv", "as_csv", is_flag=True, help="CSV with every statistic and the kernels of all attempts.")
@click.option("--json", "as_json", is_flag=True, help="JSON as the API gives it, with `attempt` and `overlapped`.")
@connected
def kernels(client: "Client", sim_id: str, as_csv: bool, as_json: bool) -> None:
    """List a sim's finished kernels with their cycles."""
    if as_csv:
        # As the server has it, byte for byte: its columns must not depend on whether a sim was started again.
        client.download_kernels_csv(sim_id, Path("/dev/stdout"))
        return
    found = list(client.kernels(sim_id, stats=as_json))
    numbers, together = attempts(found), overlapped(found)
    if as_json:
        show_json(
            [
                {**kernel.model_dump(), "attempt": number, "overlapped": also}
                for kernel, number, also in zip(found, numbers, together, strict=True)
            ]
        )
        return
    several = bool(numbers) and numbers[-1] > 1
    rows = (
        [
            k.index,
            *([number] if several else []),
            k.name,
            k.launch_uid,
            k.sim_cycles,
            k.ipc,
            k.occupancy,
            _note(k, also),
        ]
        for k, number, also in zip(found, numbers, together, strict=True)
    )
    header = ["index", *(["attempt"] if several else []), "kernel", "uid", "cycles", "IPC", "occupancy %", "note"]
    show_table(header, rows, cut=("kernel",))
    if several:
        click.echo(f"note: the simulator was started {numbers[-1]} times; attempt {numbers[-1]} counts", err=True)
    if any(together):
        click.echo(f"note: {_SINCE}", err=True)


def _note(kernel: "Kernel", together: bool) -> str:
    return ", ".join(["cut short"] * (not kernel.finished) + ["overlapped"] * together)


@click.group()
def files() -> None:
    """List, get and put a sim's files."""


@files.command("ls", epilog="\b\nExample: cascade files ls sim-6b4c91e71437")
@click.argument("sim_id")
@as_json
@connected
def list_files(client: "Client", sim_id: str, as_json: bool) -> None:
    """List files by name."""
    found = client.files(sim_id)
    if as_json:
        show_json(found)
    else:
        show_table(
            ["name", "bytes", "type", "created"],
            ([f.name, f.size, f.content_type, f.created_at] for f in found),
            fold=("name",),
        )


@files.command("get", epilog="\b\nExample: cascade files get sim-6b4c91e71437 accelsim.log.gz -o log.gz")
@click.argument("sim_id")
@click.argument("name")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: NAME in this folder.")
@connected
def get_file(client: "Client", sim_id: str, name: str, output: Path | None) -> None:
    """Download a file, whole or not at all."""
    target = output or Path(Path(name).name)
    try:
        client.download_file(sim_id, name, target)
    except OSError as error:
        raise click.ClickException(f"{target}: {error.strerror or error}") from None


@files.command("put", epilog="\b\nExample: cascade files put sim-6b4c91e71437 kernel-stats.csv")
@click.argument("sim_id")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", help="Name at the server. Default: that of PATH.")
@as_json
@connected
def put_file(client: "Client", sim_id: str, path: Path, name: str | None, as_json: bool) -> None:
    """Upload a file of at most 64 MiB."""
    try:
        stored = client.upload_file(sim_id, name or path.name, path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from None
    if as_json:
        show_json(stored)
    else:
        click.echo(f"{stored.name}: {counted(stored.size, 'byte')}")


# Two runs.


@click.command(
    "compare-runs",
    epilog=(
        "\b\nExample: cascade compare-runs run-0f3a9c2b5d71 run-77aa01b2c3d4\n\n"
        "Cycles are those since the block before: of a row marked as overlapped they are not the kernel's own duration. "
        "Where a simulator was started again, its last attempt is compared."
    ),
)
@click.argument("first")
@click.argument("second")
@as_json
@connected
def compare_runs(client: "Client", first: str, second: str, as_json: bool) -> None:
    """Two runs kernel by kernel: cycles and IPC side by side.

    Sims are paired by name, else by position; kernels the n-th of a name with the n-th of that name.
    """
    ours, theirs = client.show_run(first), client.show_run(second)
    paired = _pairs(ours, theirs)
    rows = [row for pair in paired for row in _kernel_rows(client, *pair)]
    for run in (ours, theirs):
        if alone := len(run.sims) - len(paired):
            click.echo(f"note: {counted(alone, 'sim')} of {run.id} without a partner", err=True)
    if as_json:
        show_json(rows)
        return
    header = ("sim", "index", "kernel", "cycles", "cycles 2", "change", "IPC", "IPC 2", "change", "note")
    show_table(
        header,
        ([r["sim"], r["index"], r["kernel"], *_side(r["cycles"]), *_side(r["ipc"]), _notes(r)] for r in rows),
        fold=("sim",),
        cut=("kernel",),
    )
    if any(row["overlapped"] for row in rows):
        click.echo(f"note: {_SINCE}", err=True)


def _pairs(first: "RunDetail", second: "RunDetail") -> list[tuple["SimSummary", "SimSummary"]]:
    """Sims by name where it is there once on both sides, then by place, as the page pairs them."""
    ours, theirs = _unique(first), _unique(second)
    partners = {sim.id: theirs[sim.name] for sim in first.sims if sim.name in ours and sim.name in theirs}
    taken = {sim.id for sim in partners.values()}
    for one, two in zip(first.sims, second.sims, strict=False):
        if one.id not in partners and two.id not in taken:
            partners[one.id] = two
    return [(sim, partners[sim.id]) for sim in first.sims if sim.id in partners]


def _unique(run: "RunDetail") -> dict[str, "SimSummary"]:
    counts = Counter(sim.name for sim in run.sims)
    return {sim.name: sim for sim in run.sims if counts[sim.name] == 1}


def _kernel_rows(client: "Client", first: "SimSummary", second: "SimSummary") -> Iterable[dict[str, Any]]:
    ours, theirs = _last(client, first), _last(client, second)
    together = {
        id(kernel) for side in (ours, theirs) for kernel, also in zip(side, overlapped(side), strict=True) if also
    }
    for one, two in pairs(ours, theirs):
        either = cast("Kernel", one or two)
        yield {
            "sim": first.name if first.name == second.name else f"{first.name} | {second.name}",
            "sims": {"first": first.id, "second": second.id},
            "index": either.index,
            "kernel": either.name,
            "cycles": _both(one, two, "sim_cycles"),
            "ipc": _both(one, two, "ipc"),
            "only": "second" if one is None else "first" if two is None else None,
            "overlapped": bool({id(one), id(two)} & together),
        }


def _last(client: "Client", sim: "SimSummary") -> Sequence["Kernel"]:
    """The kernels of the sim's last attempt; says so when there are others."""
    found = list(client.kernels(sim.id, stats=False))
    last = last_attempt(found)
    if len(last) < len(found):
        left = counted(len(found) - len(last), "kernel")
        click.echo(f"note: {sim.id} was started again: {left} of its earlier attempts left out", err=True)
    return last


def _both(one: "Kernel | None", two: "Kernel | None", name: str) -> dict[str, float | None]:
    """Two values, and the second's difference to the first in percent."""
    a, b = (None if kernel is None else getattr(kernel, name) for kernel in (one, two))
    return {"first": a, "second": b, "change_pct": (b - a) / a * 100 if a and b is not None else None}


def _side(values: Mapping[str, float | None]) -> list[object]:
    change = values["change_pct"]
    return [values["first"], values["second"], "" if change is None else f"{change:+.2f} %"]


def _notes(row: Mapping[str, Any]) -> str:
    return ", ".join([f"only in {row['only']}"] * bool(row["only"]) + ["overlapped"] * row["overlapped"])
