"""The commands for runs and their sims."""

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade.commands import STATES, as_json, connected
from cascade.sweep import NAME_MAX, of_file, product
from cascade.tables import clean, on_terminal, show_csv, show_fields, show_json, show_table, terminal_table
from cascade.waiting import Progress, counts_words, until_ended
from cascade.words import counted

if TYPE_CHECKING:
    from cascade.client import Client
    from chalicelib.models import RunDetail, SimDetail, SimSummary

_BIG_BODY_SIMS = 200
FINAL = ("succeeded", "failed", "cancelled")
AGAIN = "failed,lost"
"""What `runs create --from` takes when nothing else is said. Somebody wanted the cancelled ones not to run."""

# Runs.


@click.group()
def runs() -> None:
    """Create, list, show, await, cancel and delete runs."""


def _states(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
    if value is None:
        return None
    states = [state.strip() for state in value.split(",")]
    for state in states:
        if state not in STATES:
            raise click.BadParameter(f"{state!r} is not one of {', '.join(STATES)}")
    return states


@runs.command(
    "create",
    epilog=(
        "\b\nExample: cascade runs create sweep --param gpu=SM7_QV100,SM86_RTX3070 --param l2=4MB,6MB\n\n"
        "\b\nExample: cascade runs create --from run-0f3a9c2b5d71 --state failed,lost,cancelled\n\n"
        "A sim is named by the parameters that vary in the run, a path by its last parts."
    ),
)
@click.argument("name", required=False)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values apart by commas, or @FILE with one a line; blank lines and those that begin with # are left out. "
    "Several make the product.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML or JSON: a list of sims, or an object with `sims`, each {name?, params?}.",
)
@click.option(
    "--from", "source", metavar="RUN", help="The sims of that run again, those in --state, with their names and params."
)
@click.option(
    "--state",
    "states",
    metavar="STATES",
    callback=_states,
    help=f"With --from: states apart by commas. Default: {AGAIN}.",
)
@as_json
@connected
def create(
    client: "Client",
    name: str | None,
    params: tuple[str, ...],
    path: Path | None,
    source: str | None,
    states: list[str] | None,
    as_json: bool,
) -> None:
    """Create run NAME of queued sims: one, the product of --param, those of --file, or some of another run again."""
    if sum(map(bool, (params, path, source))) > 1:
        raise click.UsageError("give one of --param, --file and --from")
    if states and not source:
        raise click.UsageError("--state goes with --from")
    from cascade.client import CascadeError  # here since it takes a quarter of a second to import

    if source:
        of, sims = _again(client, source, states)
        name = name or f"{of} again"[:NAME_MAX]
    elif name is None:
        raise click.UsageError("a run needs a name: cascade runs create NAME")
    else:
        sims = of_file(path) if path else product(params)
    run = client.create_run(name, sims[:_BIG_BODY_SIMS])
    for start in range(_BIG_BODY_SIMS, len(sims), _BIG_BODY_SIMS):
        try:
            client.add_sims(run.id, sims[start : start + _BIG_BODY_SIMS])
        except CascadeError as error:
            raise click.ClickException(
                f"{run.id} has {start} of {len(sims)} sims: {error}; delete it before you try again: "
                f"cascade runs delete {run.id}"
            ) from error
        click.echo(f"{min(start + _BIG_BODY_SIMS, len(sims))} of {len(sims)} sims", err=True)
    if as_json:
        show_json(client.show_run(run.id))
    else:
        click.echo(run.id)
        click.echo(f"{counted(len(sims), 'sim')} queued; next: cascade worker --run {run.id} -- COMMAND", err=True)


def _again(client: "Client", run_id: str, states: Sequence[str] | None) -> tuple[str, list[dict[str, Any]]]:
    """The run's name, and its sims in `states` as those of a new run."""
    run = client.show_run(run_id)
    wanted = states or AGAIN.split(",")
    chosen = [sim for sim in run.sims if sim.state in wanted]
    left_out = ""
    if states is None and run.counts.cancelled:
        left_out = f"; --state {AGAIN},cancelled takes the cancelled ones too"
    if not chosen:
        raise click.ClickException(f"{run.id} has no sim that is {' or '.join(wanted)}: {counts_words(run)}{left_out}")
    if left_out:
        click.echo(f"left out: {run.counts.cancelled} cancelled{left_out}", err=True)
    params = {sim.id: sim.params for sim in client.params(run.id)}
    return run.name, [{"name": sim.name, "params": params.get(sim.id, {})} for sim in chosen]


@runs.command("list", epilog="\b\nExample: cascade runs list --limit 50")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Newest so many.")
@as_json
@connected
def list_(client: "Client", limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    found = list(itertools.islice(client.runs(), limit))
    if as_json:
        show_json(found)
    elif on_terminal():
        # Six columns of counts leave no room for a name.
        rows = ([run.id, run.name, run.created_at[:19] + "Z", counts_words(run)] for run in found)
        show_table(["run", "name", "created", "sims"], rows, fold=("name", "sims"))
    else:
        counts = ([getattr(run.counts, s) or "" for s in STATES] for run in found)
        show_table(
            ["run", "name", "created", *STATES],
            ([run.id, run.name, run.created_at[:19] + "Z", *each] for run, each in zip(found, counts, strict=True)),
        )


@runs.command(
    "show",
    epilog=(
        "\b\nExample: cascade runs show run-0f3a9c2b5d71 --state failed\n\n"
        "\b\nExample: cascade runs show run-0f3a9c2b5d71 --csv > run.csv\n\n"
        "Where the simulator of a sim was started again, cycles, instructions and IPC are those of its last attempt; "
        "kernels counts the blocks of all."
    ),
)
@click.argument("run_id")
@click.option("--state", type=click.Choice(STATES), help="Only sims in this state.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV: a row for each sim, a column for each parameter and result.")
@click.option("--watch", is_flag=True, help="Go on showing it until it has ended.")
@as_json
@connected
def show_run(client: "Client", run_id: str, state: str | None, as_csv: bool, watch: bool, as_json: bool) -> None:
    """Show a run with its sims."""
    if as_csv + watch + as_json > 1:
        raise click.UsageError("give one of --csv, --watch and --json")
    if watch:
        _watch(client, run_id, state)
        return
    run = client.show_run(run_id)
    sims = [sim for sim in run.sims if state in (None, sim.state)]
    if as_json:
        show_json(run.model_copy(update={"sims": sims}))
    elif as_csv:
        show_csv(*_csv(client, run, sims))
    else:
        click.echo(_headline(run), err=not on_terminal())
        show_table(SIM_HEADER, map(_sim_row, sims), **_NARROW)


SIM_HEADER = ("sim", "name", "state", "kernels", "cycles", "log bytes", "exit", "error")
_NARROW: dict[str, Any] = {"fold": ("name",), "cut": ("error",)}


def _headline(run: "RunDetail") -> str:
    return f"{run.id} {clean(run.name)}: {counts_words(run)}"


def _sim_row(sim: "SimSummary") -> list[object]:
    cycles = "" if sim.tot_sim_cycles is None else sim.tot_sim_cycles
    return [sim.id, sim.name, sim.state, sim.kernels, cycles, sim.log_bytes, sim.exit_code, (sim.error or "")[:100]]


_BEFORE = ("sim", "name")
_AFTER = ("state", "exit_code", "kernels", "cycles", "instructions", "ipc", "started", "finished", "error")


def _csv(client: "Client", run: "RunDetail", sims: Sequence["SimSummary"]) -> tuple[list[str], list[list[object]]]:
    """Header and rows. A parameter that is called as another column is has `param.` before its name."""
    params = {sim.id: sim.params for sim in client.params(run.id)}
    names = list(dict.fromkeys(name for sim in sims for name in params.get(sim.id, {})))
    taken = (*_BEFORE, *_AFTER)
    header = [*_BEFORE, *(f"param.{name}" if name in taken else name for name in names), *_AFTER]
    return header, [
        [
            sim.id,
            sim.name,
            *(_cell(params.get(sim.id, {}).get(name)) for name in names),
            sim.state,
            sim.exit_code,
            sim.kernels,
            sim.tot_sim_cycles,
            sim.tot_sim_insns,
            _ipc(sim),
            sim.started_at,
            sim.finished_at,
            sim.error,
        ]
        for sim in sims
    ]


def _cell(value: Any) -> object:
    """Text as it is, nothing for nothing, all else as in JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ipc(sim: "SimSummary") -> float | None:
    if not sim.tot_sim_cycles or sim.tot_sim_insns is None:
        return None
    return round(sim.tot_sim_insns / sim.tot_sim_cycles, 4)


def _watch(client: "Client", run_id: str, state: str | None) -> None:
    if not on_terminal():
        raise click.UsageError("--watch needs a terminal; in a script use: cascade runs wait")
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        for run in until_ended(client, run_id):
            rows = (_sim_row(sim) for sim in run.sims if state in (None, sim.state))
            table, _ = terminal_table(SIM_HEADER, rows, console.width, **_NARROW)
            live.update(Group(Text(_headline(run)), table), refresh=True)


@runs.command(
    "wait",
    epilog=(
        "\b\nExample: cascade runs wait run-0f3a9c2b5d71 --timeout 3600\n\n"
        "Exit code: 0 when every sim has succeeded, else 1. A lost sim may come back; when nothing else is left, it is "
        "waited for one more minute."
    ),
)
@click.argument("run_id")
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds after which it is an error. Default: no end.")
@as_json
@connected
def wait(client: "Client", run_id: str, timeout: float | None, as_json: bool) -> None:
    """Wait until every sim of a run has ended."""
    progress = Progress()
    try:
        for run in until_ended(client, run_id, timeout):
            progress.show(_headline(run))
    finally:
        progress.clear()
    if as_json:
        show_json(run)
    else:
        click.echo(_headline(run))
    if run.counts.succeeded == len(run.sims):
        return
    if run.counts.failed + run.counts.lost:
        click.echo(f"to run those again: cascade runs create --from {run.id}", err=True)
    raise SystemExit(1)


@runs.command("cancel", epilog="\b\nExample: cascade runs cancel run-0f3a9c2b5d71")
@click.argument("run_id")
@as_json
@connected
def cancel_run(client: "Client", run_id: str, as_json: bool) -> None:
    """Cancel every sim of a run that has not finished."""
    before = {sim.id for sim in client.show_run(run_id).sims if sim.state in FINAL}
    run = client.cancel_run(run_id)
    if as_json:
        show_json(run)
        return
    now = sum(sim.state == "cancelled" and sim.id not in before for sim in run.sims)
    earlier = f"; {len(before)} had finished already" if before else ""
    click.echo(f"{run.id}: {now} cancelled{earlier}")


@runs.command("delete", epilog="\b\nExample: cascade runs delete run-0f3a9c2b5d71 --yes")
@click.argument("run_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected
def delete_run(client: "Client", run_id: str, yes: bool) -> None:
    """Delete a run with its logs and files, for good."""
    if not yes:
        run = client.show_run(run_id)
        sims = counted(len(run.sims), "sim")
        click.confirm(f"Delete {run.id} {clean(run.name)} with {sims}, with logs and files?", abort=True)
    client.delete_run(run_id)


# Sims.


@click.group()
def sims() -> None:
    """Show and cancel sims."""


@sims.command("show", epilog="\b\nExample: cascade sims show sim-6b4c91e71437")
@click.argument("sim_id")
@as_json
@connected
def show_sim(client: "Client", sim_id: str, as_json: bool) -> None:
    """Show a sim whole. Exit code 1 when it failed, was cancelled or lost."""
    sim = client.show_sim(sim_id)
    if as_json:
        show_json(sim)
    else:
        show_fields(_sim_rows(sim))
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


@sims.command("cancel", epilog="\b\nExample: cascade sims cancel sim-6b4c91e71437")
@click.argument("sim_id")
@as_json
@connected
def cancel_sim(client: "Client", sim_id: str, as_json: bool) -> None:
    """Cancel a sim; its simulator is told with its next heartbeat."""
    before = client.show_sim(sim_id).state
    sim = client.cancel_sim(sim_id)
    if as_json:
        show_json(sim)
    elif before in FINAL or sim.state != "cancelled":
        click.echo(f"{sim.id}: had finished already: {sim.state}")
    else:
        click.echo(f"{sim.id}: {sim.state}")
