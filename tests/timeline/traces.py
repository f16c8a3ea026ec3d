"""The real profiler traces beside the checkout, and maps that say what each kernel takes."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from cascade.timeline.compare import compare
from cascade.timeline.kernel_times import from_map, launch_uids
from cascade.timeline.model import Compare, Kernel, RealTimeline, SimulatedTimeline
from cascade.timeline.simulate import simulate

SHARED = Path(os.environ.get("CASCADE_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "step-timing"
KINETO = sorted((SHARED / "kineto").glob("*.json.gz"))
NSYS = sorted((SHARED / "nsys").glob("*.sqlite"))


def with_times(real: RealTimeline, ns_of: Callable[[Kernel], int]) -> tuple[SimulatedTimeline, Compare]:
    """Simulated and compared with `ns_of` each kernel, by a map of launches."""
    rows = [
        {"name": kernel.name, "launch_uid": uid, "ns": ns_of(kernel)}
        for step, uids in zip(real.steps, launch_uids(real), strict=True)
        for kernel, uid in zip(step.kernels, uids, strict=True)
        if uid is not None
    ]
    simulated = simulate(real, from_map(json.dumps(rows).encode(), "map.json"))
    return simulated, compare(simulated, real)
