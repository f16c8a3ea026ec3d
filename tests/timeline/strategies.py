"""Random measured steps and timelines for the property tests. Every run draws the same ones (`derandomize`)."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cascade.timeline.model import KINDS, Kernel, RealMeta, RealTimeline, Request, Step

thousand = settings(
    max_examples=1_000, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
hundreds = settings(thousand, max_examples=300)

NAMES = ["gemm", "attention", "norm", "void at::copy<4>(int)", "graph {kernel}", "_ZN2at4copyILi4EEEvi"]

# Idle times around tau (2,000), kernels that overlap on their stream, and long waits.
idles = st.one_of(st.integers(0, 2_000), st.integers(-400, 6_000), st.just(2_000), st.integers(0, 100_000))
lengths = st.one_of(st.integers(0, 50), st.integers(0, 9_000), st.integers(0, 200_000))
factors = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, 1.1, 2.0, 7.5])


@st.composite
def steps(draw: st.DrawFn, most_streams: int = 3, origin: int | None = None, **fields: Any) -> Step:
    """A step whose kernels lie on one or more streams, some overlapping, some launched after they start."""
    start = draw(st.integers(-1_000_000, 10**15)) if origin is None else origin
    streams = draw(st.integers(1, most_streams))
    launched = draw(st.sampled_from(["all", "none", "some"]))
    busy_until = dict.fromkeys(range(streams), 0)
    last_start = dict.fromkeys(range(streams), 0)
    kernels = []
    for _ in range(draw(st.integers(0, 12))):
        stream = draw(st.integers(0, streams - 1))
        begin = max(busy_until[stream] + draw(idles), last_start[stream], 0)
        end = begin + draw(lengths)
        has_launch = launched == "all" or (launched == "some" and draw(st.booleans()))
        launch = start + begin - draw(st.integers(-300, 30_000)) if has_launch else None
        kernels.append(
            Kernel(
                name=draw(st.sampled_from(NAMES)),
                start_ns=start + begin,
                end_ns=start + end,
                launch_ns=launch,
                stream=stream,
                grid=draw(st.sampled_from([None, (1, 1, 1), (8, 2, 1)])),
                block=draw(st.sampled_from([None, (128, 1, 1)])),
            )
        )
        busy_until[stream], last_start[stream] = max(end, busy_until[stream]), begin
    end = max([kernel.end_ns for kernel in kernels], default=start) + draw(idles.filter(lambda ns: ns >= 0))
    if fields.get("shuffled", True):
        kernels = draw(st.permutations(kernels))
    own: dict[str, Any] = {"repeat": 0, "index": 0, "kind": "decode"} | {
        k: v for k, v in fields.items() if k != "shuffled"
    }
    return Step(start_ns=start, end_ns=end, kernels=list(kernels), **own)


@st.composite
def timelines(draw: st.DrawFn, untraced: bool = True) -> RealTimeline:
    """A timeline of some steps of some repeats, with requests for some of them."""
    made: list[Step] = []
    requests = []
    for repeat in range(draw(st.integers(0, 2))):
        clock = draw(st.integers(0, 10**12))
        arrival = clock - draw(lengths)
        numbers = dict.fromkeys(KINDS, 0)
        for _ in range(draw(st.integers(1, 5))):
            kind = draw(st.sampled_from(KINDS))
            step = draw(steps(origin=clock, repeat=repeat, kind=kind, index=numbers[kind]))
            if untraced and draw(st.booleans()):
                step = step.model_copy(update={"untraced_wall_ns": draw(st.integers(0, step.wall_ns + 1_000))})
            numbers[kind] += 1
            made.append(step)
            clock = step.end_ns + draw(lengths)
        if draw(st.booleans()):
            requests.append(Request(repeat=repeat, arrival_ns=arrival, end_ns=clock + draw(lengths)))
    return RealTimeline(meta=RealMeta(run_name="random"), steps=draw(st.permutations(made)), requests=requests)
