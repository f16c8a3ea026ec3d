"""The `cascade` command."""

import os
from pathlib import Path

import click

from cascade.commands_results import compare_runs, files, kernels, logs
from cascade.commands_runs import runs, sims
from cascade.commands_timeline import compare, simulate, timeline
from cascade.commands_worker import worker


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cascade-sim", prog_name="cascade")
def main() -> None:
    """Cascade: a control plane for fleets of GPU simulators."""


@main.command(epilog="\b\nExample: cascade serve --port 9000 --data-dir /data/cascade")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, envvar="PORT", show_default=True, show_envvar=True)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".cascade"),
    envvar="CASCADE_DATA_DIR",
    show_default=True,
    show_envvar=True,
    help="Where everything is kept across restarts.",
)
def serve(host: str, port: int, data_dir: Path) -> None:
    """Serve the whole API on this machine, with its data in one folder."""
    from cascade.serve.server import run

    run(host, port, data_dir)


@main.command(epilog="\b\nExample: cascade demo --speed 5")
@click.option("--url", envvar="CASCADE_URL", default=lambda: f"http://127.0.0.1:{os.environ.get('PORT', '8000')}")
@click.option("--token", envvar="CASCADE_TOKEN", help="Bearer token. Default: that of the server on this machine.")
@click.option("--speed", type=click.FloatRange(min=0.01), default=1.0, show_default=True, help="Times visible speed.")
def demo(url: str, token: str | None, speed: float) -> None:
    """Feed a running server a run of made-up simulations that end in every state."""
    from cascade.demo import run

    raise SystemExit(run(url, token, speed))


for command in (worker, runs, sims, logs, kernels, files, compare_runs, simulate, compare, timeline):
    main.add_command(command)


if __name__ == "__main__":
    main()
