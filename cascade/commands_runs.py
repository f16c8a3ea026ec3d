"""The commands for people: runs, sims, logs, kernels, files, and two runs side by side."""

import functools
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from cascade.client import Client
    from chalicelib.models import Kernel, RunDetail, SimDetail, SimSummary

F = TypeVar("F", bound=Callable[..., None])
FOLLOW_S = 1.0
STATES = ("queued", "running", "succeeded", "failed", "cancelled", "lost")
_PER_REQUEST = 1000
_BIG_BODY_SIMS = 200


def connected(command: F) -> F:
    """Give a command a client as its first argument, `--url` and `--token`, and errors in one line."""

    @click.option("--url", help="The server. Default: $CASCADE_URL, else the one on this machine.")
    @click.option("--token", help="Bearer token. Default: $CASCADE_TOKEN, else that of the server on this machine.")
    @functools.wraps(command)
    def wrapped(*args: Any, url: str | None, token: str | None, **named: Any) -> None:
        from cascade.client import CascadeError, Client

        try:
            with Client(url, token, give_up_after=20.0) as client:
                command(client, *args, **named)
        except CascadeError as error:
            raise click.ClickException(str(error)) from None

    return wrapped  # type: ignore[return-value]


as_json = click.option("--json", "as_json", is_flag=True, help="JSON as the API gives it, for scripts.")


def show_json(value: Any) -> None:
    """A model, a list of models or plain data as JSON."""
    from pydantic import TypeAdapter

    click.echo(json.dumps(TypeAdapter(Any).dump_python(value), ensure_ascii=False, indent=2))


def clean(text: object) -> str:
    """Text of others, which must not move the cursor or colour this terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", "" if text is None else str(text))


def show_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal, tab-separated lines for whatever reads a pipe."""
    if not sys.stdout.isatty():
        for row in itertools.chain([header], rows):
            click.echo("\t".join(clean(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*header, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    Console().print(table)


# Runs.


@click.group()
def runs() -> None:
    """Create, list, show, cancel and delete runs."""


@runs.command(
    "create", epilog="Example: cascade runs create sweep --param config=volta,ampere --param trace=@traces.txt"
)
@click.argument("name")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values apart by commas, or @FILE with one a line. Several make the product.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML or JSON: a list of sims, or an object with `sims`, each {name?, params?}.",
)
@as_json
@connected
def create(client: "Client", name: str, params: tuple[str, ...], path: Path | None, as_json: bool) -> None:
    """Create a run of queued sims: one, the product of --param, or those of --file."""
    sims = _sims_of(path) if path else _product(params)
    if path and params:
        raise click.UsageError("give --param or --file, not both")
    run = client.create_run(name, sims[:_BIG_BODY_SIMS])
    for start in range(_BIG_BODY_SIMS, len(sims), _BIG_BODY_SIMS):
        client.add_sims(run.id, sims[start : start + _BIG_BODY_SIMS])
        click.echo(f"{min(start + _BIG_BODY_SIMS, len(sims))} of {len(sims)} sims", err=True)
    if as_json:
        show_json(client.show_run(run.id))
    else:
        click.echo(run.id)
        click.echo(f"{len(sims)} sims queued; next: cascade worker --run {run.id} -- COMMAND", err=True)


def _product(params: Sequence[str]) -> list[dict[str, Any]]:
    axes: dict[str, list[Any]] = {}
    for text in params:
        name, equals, values = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--param {text}: write NAME=VALUE,VALUE or NAME=@FILE")
        if name in axes:
            raise click.UsageError(f"--param {name} is given twice")
        if values.startswith("@"):
            try:
                lines = Path(values[1:]).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise click.ClickException(f"{values[1:]}: {getattr(error, 'strerror', None) or error}") from None
            axes[name] = [_value(line.strip()) for line in lines if line.strip() and not line.startswith("#")]
        else:
            axes[name] = [_value(value) for value in values.split(",")]
        if not axes[name]:
            raise click.UsageError(f"--param {name} has no value")
    combinations = itertools.product(*axes.values())
    return [
        {"params": dict(zip(axes, values, strict=True)), **({"name": _label(axes, values)} if axes else {})}
        for values in combinations
    ]


def _value(text: str) -> Any:
    """A number where the text is one, as in JSON; else text."""
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,15})?", text):
        return json.loads(text)
    return {"true": True, "false": False}.get(text, text)


def _label(axes: Mapping[str, Sequence[Any]], values: Sequence[Any]) -> str:
    varied = [f"{name}={value}" for (name, every), value in zip(axes.items(), values, strict=True) if len(every) > 1]
    return (" ".join(varied) or " ".join(f"{name}={value}" for name, value in zip(axes, values, strict=True)))[:200]


def _sims_of(path: Path) -> list[dict[str, Any]]:
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
    unknown = sorted({key for sim in sims for key in sim} - {"name", "params"})
    if unknown:
        raise click.ClickException(f"{path}: a sim has name and params, not {unknown[0]}")
    return sims


@runs.command("list", epilog="Example: cascade runs list --limit 50")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Newest so many.")
@as_json
@connected
def list_(client: "Client", limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    found = list(itertools.islice(client.runs(), limit))
    if as_json:
        show_json(found)
        return
    rows = (
        [run.id, run.name, run.created_at[:19] + "Z", *(getattr(run.counts, s) or "" for s in STATES)] for run in found
    )
    show_table(["run", "name", "created", *STATES], rows)


@runs.command("show", epilog="Example: cascade runs show run-0f3a9c2b5d71 --state failed")
@click.argument("run_id")
@click.option("--state", type=click.Choice(STATES), help="Only sims in this state.")
@as_json
@connected
def show_run(client: "Client", run_id: str, state: str | None, as_json: bool) -> None:
    """Show a run with its sims."""
    run = client.show_run(run_id)
    if as_json:
        show_json(run)
        return
    counts = ", ".join(f"{getattr(run.counts, s)} {s}" for s in STATES if getattr(run.counts, s))
    click.echo(f"{run.id} {clean(run.name)}: {counts}", err=not sys.stdout.isatty())
    show_table(SIM_HEADER, (_sim_row(sim) for sim in run.sims if state in (None, sim.state)))


SIM_HEADER = ("sim", "name", "state", "kernels", "cycles", "log bytes", "exit", "error")


def _sim_row(sim: "SimSummary") -> list[object]:
    cycles = "" if sim.tot_sim_cycles is None else sim.tot_sim_cycles
    return [sim.id, sim.name, sim.state, sim.kernels, cycles, sim.log_bytes, sim.exit_code, (sim.error or "")[:100]]


@runs.command("cancel", epilog="Example: cascade runs cancel run-0f3a9c2b5d71")
@click.argument("run_id")
@as_json
@connected
def cancel_run(client: "Client", run_id: str, as_json: bool) -> None:
    """Cancel every sim of a run that has not finished."""
    _after_cancel(client.cancel_run(run_id), as_json)


def _after_cancel(run: "RunDetail", as_json: bool) -> None:
    if as_json:
        show_json(run)
    else:
        click.echo(f"{run.id}: {run.counts.cancelled} cancelled")


@runs.command("delete", epilog="Example: cascade runs delete run-0f3a9c2b5d71 --yes")
@click.argument("run_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
def delete_run(client: "Client", run_id: str, yes: bool) -> None:
    """Delete a run with its logs and files, for good."""
    if not yes:
        run = client.show_run(run_id)
        click.confirm(f"Delete {run.id} {clean(run.name)} with {len(run.sims)} sims, their logs and files?", abort=True)
    client.delete_run(run_id)


# Sims.


@click.group()
def sims() -> None:
    """Show and cancel sims."""


@sims.command("show", epilog="Example: cascade sims show sim-6b4c91e71437")
@click.argument("sim_id")
@as_json
@connected
def show_sim(client: "Client", sim_id: str, as_json: bool) -> None:
    """Show a sim whole. Exit code 1 when it failed, was cancelled or lost."""
    sim = client.show_sim(sim_id)
    if as_json:
        show_json(sim)
    else:
        show_table(["", ""], _sim_rows(sim))
    if sim.state in ("failed", "cancelled", "lost"):
        raise SystemExit(1)


def _sim_rows(sim: "SimDetail") -> Iterable[Sequence[object]]:
    for name, value in sim.model_dump().items():
        if isinstance(value, dict):
            yield from (
                (f"{name}.{key}", json.dumps(each) if isinstance(each, (list, dict)) else each)
                for key, each in value.items()
            )
        else:
            yield name, value


@sims.command("cancel", epilog="Example: cascade sims cancel sim-6b4c91e71437")
@click.argument("sim_id")
@as_json
@connected
def cancel_sim(client: "Client", sim_id: str, as_json: bool) -> None:
    """Cancel a sim; its simulator is told with its next heartbeat."""
    sim = client.cancel_sim(sim_id)
    if as_json:
        show_json(sim)
    else:
        click.echo(f"{sim.id}: {sim.state}")


# Results.


@click.command(epilog="Example: cascade logs sim-6b4c91e71437 -f --tail 20")
@click.argument("sim_id")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the sim has finished.")
@click.option("--tail", type=click.IntRange(1, 10_000), help="Only the last so many lines.")
@connected
def logs(client: "Client", sim_id: str, follow: bool, tail: int | None) -> None:
    """Print a sim's log."""
    page = client.log_tail(sim_id, tail) if tail else client.read_log(sim_id, 0, 1000)
    while True:
        _print_lines(page)
        if page.chunks:
            page = client.read_log(sim_id, page.next_seq, 1000)
            continue
        if not follow or client.show_sim(sim_id).state in ("succeeded", "failed", "cancelled"):
            return
        time.sleep(FOLLOW_S)
        page = client.read_log(sim_id, page.next_seq, 1000)


def _print_lines(page: Any) -> None:
    expected = None
    for chunk in page.chunks:
        if expected is not None and chunk.seq != expected:
            click.echo(f"[chunks {expected} to {chunk.seq - 1} have not arrived]", err=True)
        expected = chunk.seq + 1
        for line in chunk.lines:
            click.echo(line)


@click.command(epilog="Example: cascade kernels sim-6b4c91e71437 --csv > kernels.csv")
@click.argument("sim_id")
@click.option("--csv", "as_csv", is_flag=True, help="CSV with every statistic.")
@as_json
@connected
def kernels(client: "Client", sim_id: str, as_csv: bool, as_json: bool) -> None:
    """List a sim's finished kernels with their cycles."""
    if as_csv:
        client.download_kernels_csv(sim_id, Path("/dev/stdout"))
        return
    found = list(client.kernels(sim_id, stats=as_json))
    if as_json:
        show_json(found)
        return
    rows = (
        [k.index, k.name, k.launch_uid, k.sim_cycles, k.ipc, k.occupancy, "" if k.finished else "cut short"]
        for k in found
    )
    show_table(["index", "kernel", "uid", "cycles", "IPC", "occupancy %", ""], rows)


@click.group()
def files() -> None:
    """List, get and put a sim's files."""


@files.command("ls", epilog="Example: cascade files ls sim-6b4c91e71437")
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
            ["name", "bytes", "type", "created"], ([f.name, f.size, f.content_type, f.created_at] for f in found)
        )


@files.command("get", epilog="Example: cascade files get sim-6b4c91e71437 accelsim.log.gz -o log.gz")
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


@files.command("put", epilog="Example: cascade files put sim-6b4c91e71437 kernel-stats.csv")
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
        click.echo(f"{stored.name}: {stored.size} bytes")


# Two runs.


@click.command("compare-runs", epilog="Example: cascade compare-runs run-0f3a9c2b5d71 run-77aa01b2c3d4")
@click.argument("first")
@click.argument("second")
@as_json
@connected
def compare_runs(client: "Client", first: str, second: str, as_json: bool) -> None:
    """Two runs kernel by kernel: cycles and IPC side by side. Sims are paired by name, else by position."""
    rows = [
        row for pair in _pairs(client.show_run(first), client.show_run(second)) for row in _kernel_rows(client, *pair)
    ]
    if as_json:
        show_json(rows)
        return
    header = ("sim", "index", "kernel", "cycles", "cycles 2", "change", "IPC", "IPC 2", "change")
    show_table(
        header,
        ([r["sim"], r["index"], r["kernel"], *_side(r["cycles"]), *_side(r["ipc"])] for r in rows),
    )


def _pairs(first: "RunDetail", second: "RunDetail") -> list[tuple["SimSummary", "SimSummary"]]:
    names = {sim.name: sim for sim in second.sims}
    if len(names) == len(second.sims) and len({sim.name for sim in first.sims}) == len(first.sims):
        return [(sim, names[sim.name]) for sim in first.sims if sim.name in names]
    return list(zip(first.sims, second.sims, strict=False))


def _kernel_rows(client: "Client", first: "SimSummary", second: "SimSummary") -> Iterable[dict[str, Any]]:
    ours, theirs = (list(client.kernels(sim.id, stats=False)) for sim in (first, second))
    for index, (one, two) in enumerate(itertools.zip_longest(ours, theirs)):
        same = one is not None and two is not None and one.name == two.name
        yield {
            "sim": first.name,
            "index": index,
            "kernel": (one or two).name,
            "cycles": _both(one, two, "sim_cycles", same),
            "ipc": _both(one, two, "ipc", same),
        }


def _both(one: "Kernel | None", two: "Kernel | None", name: str, same: bool) -> dict[str, float | None]:
    """Two values, and the second's difference to the first in percent where the two kernels are one and the same."""
    a, b = (None if kernel is None else getattr(kernel, name) for kernel in (one, two))
    change = (b - a) / a * 100 if same and a and b is not None else None
    return {"first": a, "second": b, "change_pct": change}


def _side(values: Mapping[str, float | None]) -> list[object]:
    change = values["change_pct"]
    return [values["first"], values["second"], "" if change is None else f"{change:+.2f} %"]
