"""`cascade worker`."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> float:
    """The seconds of a text such as `16h`, `1h30m` or `45s`."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise click.BadParameter(f"{text!r} is no duration such as 16h, 1h30m or 45s")
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts))


@click.command(
    short_help="Run simulators for queued sims and report everything about them.",
    context_settings={"ignore_unknown_options": True},
    epilog=(
        "Example: cascade worker --run run-0f3a9c2b5d71 --jobs 4 -- accel-sim.out -trace {trace} -config {config}\n\n"
        "{trace} and {config} are params of the sim, {sim} is its id, {{ and }} are braces. Each simulator runs without a "
        "shell in an empty folder of its own; what it leaves there is uploaded. The program, and an argument that is the "
        "path of a file here (with a / in it), are made absolute. --copy puts files into the folder. CASCADE_SIM_ID, "
        "CASCADE_RUN_ID and CASCADE_ATTEMPT are in its environment, CASCADE_TOKEN is not.\n\n"
        "Exit code: 0 when every sim has succeeded, 1 when one has not, 2 for a wrong command line, such as an unknown placeholder or a program that is not there."
    ),
)
@click.option("--run", "run_id", help="Claim queued sims of this run, one after another.")
@click.option("--sim", "sim_id", help="Run this sim, or take up what a killed worker left of it on this machine.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Sims at a time, with --run.")
@click.option("--forever", is_flag=True, help="With --run: wait for more when nothing is queued.")
@click.option("--max-sims", type=click.IntRange(1), help="With --run: so many sims, then end.")
@click.option(
    "--stop-claiming-after",
    type=duration,
    help="With --run: begin no other sim after 16h, 30m or 1h30m; those under way go on.",
)
@click.option("--url", help="The server. Default: $CASCADE_URL, else the one on this machine.")
@click.option("--token", help="Bearer token. Default: $CASCADE_TOKEN, else that of the server on this machine.")
@click.option(
    "--spool",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="CASCADE_SPOOL_DIR",
    show_envvar=True,
    help="Where logs and files wait until the server has them. Default: in ~/.local/state.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds from SIGTERM to SIGKILL when a simulator is stopped.",
)
@click.option(
    "--on-stop",
    type=click.Choice(["fail", "leave"]),
    default="fail",
    show_default=True,
    help="When told to stop: report the sims as failed, or leave them, for the next worker on the spool to run again.",
)
@click.option(
    "--success",
    type=click.Choice(["accel-sim", "exit-code"]),
    default="accel-sim",
    show_default=True,
    help="What counts as success: Accel-Sim's own last line, all kernels and no limit; or just exit code 0.",
)
@click.option(
    "--copy",
    "copies",
    multiple=True,
    metavar="FILE",
    help="Copy this file into the simulator's folder, such as {config}/gpgpusim.config. May be repeated.",
)
@click.option(
    "--give-up-after", type=click.FloatRange(min=0), help="Seconds a failing call is repeated. Default: no end."
)
@click.option("--keep", is_flag=True, help="Keep what the simulator wrote in the spool.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def worker(
    run_id: str | None,
    sim_id: str | None,
    jobs: int,
    forever: bool,
    max_sims: int | None,
    stop_claiming_after: float | None,
    url: str | None,
    token: str | None,
    spool: Path | None,
    grace: float,
    on_stop: str,
    success: str,
    copies: tuple[str, ...],
    give_up_after: float | None,
    keep: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND for each sim: heartbeats, log, step timing and files go to the server, cancels reach the simulator.

    Whatever the network or the server does, the simulation goes on; what could not be sent waits on disk. SIGTERM and Ctrl-C
    stop the simulators; then --on-stop decides what becomes of their sims. A second one leaves what could not be sent for
    the next worker.
    """
    if (run_id is None) == (sim_id is None):
        raise click.UsageError("give either --run or --sim")
    for kind, given in (("run", run_id), ("sim", sim_id)):
        if given is not None and not given.strip():
            raise click.UsageError(f"empty {kind} id")
    if sim_id is not None and (max_sims is not None or stop_claiming_after is not None):
        raise click.UsageError("--max-sims and --stop-claiming-after go with --run")
    from cascade.client import CascadeError, Client
    from cascade.worker.command import CommandError
    from cascade.worker.job import Settings
    from cascade.worker.view import View
    from cascade.worker.worker import Limits, Worker, default_root
    from cascade.worker.worker import forever as no_end

    root = (spool or default_root()).absolute()
    hurry = threading.Event()
    with View() as view:

        def connect(timeout: float, give_up_after: float) -> Client:
            return Client(url, token, timeout=timeout, give_up_after=give_up_after, stop=hurry, on_retry=view.waiting)

        try:
            settings = Settings(connect, root, grace, success, on_stop == "leave", no_end(give_up_after), keep)
            limits = Limits(jobs, forever, max_sims, stop_claiming_after)
            made = Worker(settings, command, copies, limits, view, hurry)
            run: Callable[[str], int] = made.run_run if run_id else made.run_sim
            code = run(run_id or sim_id or "")
        except (CascadeError, CommandError, OSError) as error:
            view.say(f"Error: {error}", error=True)
            code = 2 if isinstance(error, CommandError) else 1
    raise SystemExit(code)
