"""Real Accel-Sim logs beside the repository, and what an independent scan found in them."""

import json
import os
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("CASCADE_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "accel-sim"
LOGS = sorted((SHARED / "logs").glob("*.log"))


def lines_of(log: Path) -> list[str]:
    """The lines of a log without their newlines; bytes that are not UTF-8 become U+FFFD."""
    lines = log.read_bytes().decode("utf-8", "replace").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def expected(log: Path) -> list[tuple[Any, ...]]:
    """One tuple a kernel, as `found` gives them."""
    wanted = json.loads((SHARED / "expected" / f"{log.stem}.json").read_text())
    return [
        (
            k.get("finished_name") or k["name"], k["finished_uid"], k["stream_id"], k["sim_cycle"], k["sim_insn"], k["ipc"],
            k["tot_sim_cycle"], k["tot_sim_insn"], k["occupancy_pct"], k["l2_bw_gbps"], k.get("finished", True),
        )
        for k in wanted["kernels"]
    ]  # fmt: skip


def found(kernels: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Kernels of the API as tuples."""
    names = (
        "name", "launch_uid", "stream_id", "sim_cycles", "sim_insns", "ipc",
        "tot_sim_cycles", "tot_sim_insns", "occupancy", "l2_bw_gbps", "finished",
    )  # fmt: skip
    return [tuple(k[name] for name in names) for k in kernels]
