"""Study: how well host models predict a step's wall time when its kernels take another time than was measured.

It prints the same table every time.

The truth is a host queue (`cascade.timeline.synthetic.run_queue`): the host works before each launch, a launch reaches
the GPU after a latency, the GPU runs kernels in order with a short delay between two. A step runs through it with its
own kernel durations, which is the measurement, and with others, which is the truth. Each model sees the measurement and
the other durations and says how long the step takes; the error is against the truth.

- gaps kept: new busy time plus the measured gaps
- gaps proportional: the measured wall times new busy time over measured busy time
- scaled-gaps, no launches: the model of `cascade simulate` when the trace has no launch times
- scaled-gaps: the same with launch times
"""

import argparse
from collections.abc import Callable, Sequence
from random import Random

from cascade.timeline.host_model import measure, play, wall_from_totals
from cascade.timeline.model import Kind, Step
from cascade.timeline.synthetic import Launch, QueuedStep, llm_run, run_queue, timeline

MODELS = ("gaps kept", "gaps proportional", "scaled-gaps, no launches", "scaled-gaps")
# (case, kind of step, launch, scale of kernel times): 0.3 is a model small enough that eager decode waits for the host.
CASES: tuple[tuple[str, Kind, Launch, float], ...] = (
    ("host-bound decode", "decode", "eager", 0.3),
    ("GPU-bound decode", "decode", "eager", 1.5),
    ("graph-launched decode", "decode", "graph", 0.3),
    ("prefill", "prefill", "eager", 1.0),
)
# How the other durations come from the measured ones: a factor, or a random one for each kernel name (0.5 to 2).
CHANGES: dict[str, float | None] = {
    "x 0.2": 0.2,
    "x 0.5": 0.5,
    "x 0.8": 0.8,
    "x 1.25": 1.25,
    "x 2": 2.0,
    "x 3": 3.0,
    "x 0.5 to 2": None,
}
# Errors this close are a tie: percentage points of wall time.
TIE = 0.05


def predict(measured: Step, without_launches: Step, durations: Sequence[int]) -> dict[str, int]:
    """Wall in ns of a step with other kernel durations (in order), by each of MODELS."""
    with_launches = measure(measured)
    busy, gaps = sum(durations), with_launches.wall - with_launches.busy
    return {
        "gaps kept": wall_from_totals(busy, gaps),
        "gaps proportional": round(with_launches.wall * busy / with_launches.busy),
        "scaled-gaps, no launches": play(measure(without_launches), durations).wall,
        "scaled-gaps": play(with_launches, durations).wall,
    }


def changed(step: QueuedStep, factor_of: Callable[[str], float]) -> list[int]:
    """The step's durations in ns, each times its kernel's factor."""
    return [max(round(kernel.duration_ns * factor_of(kernel.name)), 1) for kernel in step.kernels]


def study(seed: int, decode_steps: int) -> dict[tuple[str, str], dict[str, float]]:
    """Mean absolute wall error in percent of the truth, by (case, change) and model."""
    errors: dict[tuple[str, str], dict[str, float]] = {}
    for case, kind, launch, scale in CASES:
        # A run has one prefill, so prefills come from runs of their own seeds.
        seeds = range(seed, seed + decode_steps) if kind == "prefill" else [seed]
        runs = [
            llm_run(s, decode_steps=0 if kind == "prefill" else decode_steps, launch=launch, scale=scale) for s in seeds
        ]
        for change, factor in CHANGES.items():
            random = Random(seed)
            factors: dict[str, float] = {}
            sums = dict.fromkeys(MODELS, 0.0)
            count = 0
            for run in runs:
                measured, bare = timeline(run, case), timeline(run, case, launches=False)
                for queued, step, without in zip(run, measured.steps, bare.steps, strict=True):
                    if step.kind != kind:
                        continue
                    durations = changed(
                        queued,
                        lambda name, f=factor, factors=factors, random=random: (
                            factors.setdefault(name, 2 ** random.uniform(-1, 1)) if f is None else f
                        ),
                    )
                    truth = run_queue(queued, durations).wall
                    for model, wall in predict(step, without, durations).items():
                        sums[model] += 100 * abs(wall - truth) / truth
                    count += 1
            errors[case, change] = {model: total / count for model, total in sums.items()}
    return errors


def table(errors: dict[tuple[str, str], dict[str, float]]) -> str:
    """The errors as a Markdown table; the best of a row, and what ties with it, in bold."""
    lines = ["| case | kernel times | " + " | ".join(MODELS) + " |", "|---|---|" + "---:|" * len(MODELS)]
    for (case, change), row in errors.items():
        best = min(row.values())
        cells = [f"**{row[m]:.2f} %**" if row[m] <= best + TIE else f"{row[m]:.2f} %" for m in MODELS]
        lines.append(f"| {case} | {change} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20, help="steps a case")
    options = parser.parse_args()
    print(table(study(options.seed, options.steps)))


if __name__ == "__main__":
    main()
