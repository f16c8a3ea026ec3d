"""The whole of step timing in one call, as `cascade worker` makes it."""

import json
from pathlib import Path
from typing import Any

from cascade.timeline.compare import compare
from cascade.timeline.model import RealTimeline, dump, read
from cascade.timeline.simulate import simulate
from cascade.timeline.simulator import times_of_log


def simulate_and_compare(
    real_timeline: Path, log: Path, clock_mhz: float | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `cascade simulate` and `cascade compare` would write, for upload.

    Args:
        real_timeline: the measured timeline, `real_timeline.json`.
        log: the simulator's log, plain or gzipped.
        clock_mhz: core clock in MHz; by default the one in the log's header.

    Raises:
        TimelineError: either file cannot be read or makes no sense with the other.
    """
    real = read(real_timeline, RealTimeline)
    simulated = simulate(real, times_of_log(log, clock_mhz))
    return json.loads(dump(simulated)), json.loads(dump(compare(simulated, real)))
