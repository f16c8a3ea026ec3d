"""The three files of step timing as pydantic models: real_timeline.json, simulated_timeline.json, compare.json.

All times are integer nanoseconds. Reading is strict (a string is not a number, a boolean is not an integer) and
fields that are not named here are ignored. Writing gives the same bytes for the same values.
"""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass as validated
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

Kind = Literal["prefill", "decode", "mixed", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
REQUEST_ASSUMPTION = "one request per repeat; queue + prefill/decode walls"

_CONFIG = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
# Bounded to what NumPy and every JSON reader with 64-bit integers keep exactly.
Ns = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
NsLength = Annotated[int, Field(ge=0, le=2**63 - 1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
# Of sums and simulated times, which only Python and JSON hold: no bound to overflow.
Total = Annotated[int, Field(ge=0)]
Size3 = tuple[Count, Count, Count]
StepKey = tuple[int, Kind, int]


class TimelineError(ValueError):
    """Input that cannot be used. The message is one line and names the file, and the step and kernel where known."""


class Model(BaseModel):
    model_config = _CONFIG


# A dataclass with slots, not a BaseModel: at 100,000 kernels that is 20 MB instead of 120 MB.
@validated(frozen=True, slots=True, config=_CONFIG)
class Kernel:
    """One kernel as the profiler measured it."""

    name: str
    start_ns: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, description="When it began on the GPU.")]
    end_ns: Annotated[int, Field(ge=-(2**63), le=2**63 - 1, description="When it ended; not before it began.")]
    launch_uid: Annotated[
        Count | None, Field(description="Number of the launch in its run, from 1, as the simulator counts them.")
    ] = None
    launch_ns: Annotated[Ns | None, Field(description="When the host launched it, on the same clock.")] = None
    stream: Annotated[
        int | str | None, Field(description="Stream it ran on. All kernels without one share a stream.")
    ] = None
    grid: Annotated[Size3 | None, Field(description="Thread blocks in x, y, z.")] = None
    block: Annotated[Size3 | None, Field(description="Threads of a block in x, y, z.")] = None


class StepId(Model):
    """What a step is known by in every file."""

    repeat: Count = Field(description="Which repetition of the run, from 0.")
    index: Count = Field(description="Number of the step among those of its repeat and kind, from 0.")
    kind: Kind

    @property
    def key(self) -> StepKey:
        """(repeat, kind, index), by which steps are matched."""
        return self.repeat, self.kind, self.index

    @property
    def label(self) -> str:
        """The step in words, for errors and tables: `step decode 3 of repeat 0`."""
        return f"step {self.kind} {self.index} of repeat {self.repeat}"


class Step(StepId):
    """One step of the run, such as a prefill or a decode, with the kernels that ran in it."""

    start_ns: Ns
    end_ns: Ns
    name: str | None = Field(default=None, description="What the trace calls it.")
    request: int | str | None = Field(default=None, description="The request it served.")
    kernels: list[Kernel] = Field(description="The kernels that ran in it.")
    untraced_wall_ns: NsLength | None = Field(
        default=None, description="Wall time of the same step without the profiler, where it was timed."
    )

    @property
    def wall_ns(self) -> int:
        """Measured wall time: end minus start."""
        return self.end_ns - self.start_ns


class Request(Model):
    """The request of one repeat, as a client saw it."""

    repeat: Count
    arrival_ns: Ns = Field(description="When it was sent, on the clock of the steps.")
    first_token_ns: Ns | None = None
    end_ns: Ns = Field(description="When its last token came.")


class RealMeta(Model):
    run_name: str
    gpu: str | None = Field(default=None, description="Name of the GPU it was measured on.")
    core_clock_mhz: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Core clock of the GPU it was measured on, for the reader; never used to turn cycles into time.",
    )


class RealTimeline(Model):
    """real_timeline.json: what was measured on a real GPU.

    Holds for every instance: steps are known by one key each, none ends before it starts, none of one repeat overlap;
    each kernel lies within its step and does not end before it starts; a repeat has at most one request.
    """

    meta: RealMeta
    steps: list[Step]
    requests: list[Request] = Field(default_factory=list)

    @model_validator(mode="after")
    def _holds(self) -> Self:
        seen: set[StepKey] = set()
        for step in self.steps:
            if step.key in seen:
                raise _wrong(f"{step.label} is there twice")
            seen.add(step.key)
            if step.end_ns < step.start_ns:
                raise _wrong(f"{step.label} ends at {step.end_ns} before it starts at {step.start_ns}")
            for position, kernel in enumerate(step.kernels):
                if not step.start_ns <= kernel.start_ns <= kernel.end_ns <= step.end_ns:
                    raise _wrong(f"{step.label}, {kernel_label(position, kernel.name)}: {_misplaced(step, kernel)}")
        ordered = sorted(self.steps, key=lambda step: (step.repeat, step.start_ns, step.end_ns))
        for before, after in pairwise(ordered):
            if before.repeat == after.repeat and after.start_ns < before.end_ns:
                raise _wrong(
                    f"{after.label} starts at {after.start_ns}, before {before.label} ends at {before.end_ns}: steps overlap"
                )
        self._check_requests()
        return self

    def _check_requests(self) -> None:
        first_start: dict[int, int] = {}
        for step in self.steps:
            first_start[step.repeat] = min(step.start_ns, first_start.get(step.repeat, step.start_ns))
        seen: set[int] = set()
        for request in self.requests:
            if request.repeat in seen:
                raise _wrong(f"repeat {request.repeat} has two requests; step timing knows one request per repeat")
            seen.add(request.repeat)
            if request.repeat not in first_start:
                raise _wrong(f"the request of repeat {request.repeat} has no step")
            token_ns = request.end_ns if request.first_token_ns is None else request.first_token_ns
            if not request.arrival_ns <= token_ns <= request.end_ns:
                raise _wrong(f"the request of repeat {request.repeat}: arrival, first token and end are not in order")
            if request.arrival_ns > first_start[request.repeat]:
                raise _wrong(
                    f"the request of repeat {request.repeat} arrives at {request.arrival_ns}, after its first step starts "
                    f"at {first_start[request.repeat]}; are they on two clocks?"
                )


class SimulatedMeta(Model):
    run_name: str
    gpu: str | None = Field(default=None, description="Name of the GPU the timeline was measured on.")


class SimulatedStep(StepId):
    """One step as it would have run with the simulated kernels."""

    name: str | None = None
    request: int | str | None = None
    start_ns: int = Field(
        description="Simulated start: steps of a repeat follow each other with the measured time between."
    )
    end_ns: int
    wall_ns: Total = Field(description="Simulated wall time.")
    gpu_busy_ns: Total = Field(description="Union of the simulated kernel intervals.")
    host_gap_ns: Total = Field(description="wall_ns minus gpu_busy_ns.")
    measured_wall_ns: Total
    measured_gpu_busy_ns: Total


class RequestTimes(Model):
    """Times of one request, composed of its queue and the walls of its steps."""

    wall_ns: Total = Field(description="Queue plus prefill walls plus decode walls.")
    ttft_ns: Total = Field(description="Time to first token: queue plus prefill walls.")
    tpot_ns: Annotated[float, Field(ge=0)] | None = Field(
        description="Decode walls over decode steps; null without a decode step."
    )


class SimulatedRequest(RequestTimes):
    repeat: Count
    queue_ns: Total = Field(description="Measured: arrival to the start of the first step.")
    prefill_steps: Count
    decode_steps: Count
    measured: RequestTimes = Field(description="The same sums over the measured walls.")
    measured_wall_ns: Total = Field(description="Arrival to end, as the client saw it.")
    measured_ttft_ns: Total | None = Field(description="Arrival to first token, as the client saw it.")
    residual_ns: int = Field(
        description="measured_wall_ns minus measured.wall_ns: time between steps and in steps of other kinds."
    )


class Coverage(Model):
    """How much of the measured GPU time has a simulated time. Sums are of kernel durations, so that they add up."""

    kernels: Count
    simulated_kernels: Count = Field(description="Kernels with a simulated time, those of via_kernels among them.")
    via_kernels: Count = Field(
        default=0, description="Of them, those that another kernel of the same name and shape stands for."
    )
    kernel_fraction: float | int = Field(description="simulated_kernels over kernels; 0 without kernels.")
    gpu_time_fraction: float | int = Field(
        description="covered_measured_gpu_ns over measured_gpu_ns; 0 when that is 0."
    )
    measured_gpu_ns: Total | float = Field(description="Sum of the measured durations of all kernels.")
    covered_measured_gpu_ns: Total | float = Field(description="The part of it whose kernels have a simulated time.")
    unmodeled_gpu_ns: Total | float = Field(description="The rest: these kernels keep their measured time.")
    covered_simulated_gpu_ns: Total = Field(
        default=0, description="Sum of the simulated durations of the covered kernels."
    )


class StepCoverage(Coverage, StepId):
    kernel_count_differs: bool = Field(
        description="True unless its number of kernels is the single most common one among the steps of its kind."
    )


class TimelineCoverage(Coverage):
    steps: list[StepCoverage]


class HostFit(Model):
    """Fit of the host time of one kind of step without the profiler against that with it."""

    alpha: Annotated[float, Field(ge=0)] = Field(description="Untraced host gap = alpha * traced host gap.")
    steps: Count = Field(description="Steps timed both ways.")
    rms_residual_ns: Annotated[float, Field(ge=0)] = Field(description="Root mean square of what the fit leaves.")


class Simulation(Model):
    host_model: Literal["scaled-gaps"] = "scaled-gaps"
    host_fit: dict[Kind, HostFit]
    coverage: TimelineCoverage
    request_assumption: str = REQUEST_ASSUMPTION
    core_clock_mhz: float | None = Field(
        default=None, description="Clock that turned cycles into time; absent when none was needed."
    )
    notes: dict[str, Count] = Field(default_factory=dict, description="What was counted about the input, by reason.")


class Spread(Model):
    """Of one quantity over the steps of a kind; percentiles by linear interpolation."""

    total: Total
    mean: float
    p50: float
    p95: float


class KindTimes(Model):
    steps: Count
    wall_ns: Spread
    gpu_busy_ns: Spread
    host_gap_ns: Total
    gpu_busy_fraction: float


class SimulatedSummary(Model):
    simulation: Simulation
    per_kind: dict[Kind, KindTimes]


class SimulatedTimeline(Model):
    """simulated_timeline.json: what `cascade simulate` writes.

    A timeline without steps gives exactly the object of the API reference: fields that describe steps are then absent.
    """

    meta: SimulatedMeta
    steps: list[SimulatedStep]
    requests: list[SimulatedRequest]
    summary: SimulatedSummary


class ErrorStats(Model):
    """Errors, simulated minus real, over the matched rows; all null at count 0. Percentages leave out rows whose real is 0."""

    count: Count
    mean_error: float | None
    mean_abs_error: float | None
    p50_abs_error: float | None
    p95_abs_error: float | None
    mean_error_pct: float | None
    mean_abs_error_pct: float | None
    p50_abs_error_pct: float | None
    p95_abs_error_pct: float | None
    aggregate_abs_error_pct: float | None = Field(
        default=None,
        description="100 * sum of absolute errors / sum of real; absent at count 0, null when the sum of real is 0.",
    )
    real_zero: Count = Field(
        default=0, description="Rows left out of the percentages because their real is 0; absent at count 0."
    )


class Pair(Model):
    simulated: float | int
    real: float | int
    error: float | int = Field(description="simulated minus real")
    error_pct: float | None = Field(description="100 * error / real; null when real is 0")


class CompareStep(StepId):
    wall_ns: Pair
    gpu_busy_ns: Pair
    gpu_time_fraction: float | int = Field(description="Share of the step's measured GPU time that was simulated.")
    covered_gpu_ns: Pair = Field(description="Summed durations of the covered kernels alone.")
    untraced_wall_ns: Pair | None = Field(
        default=None, description="Against the wall without the profiler, where it was timed."
    )


class CompareRequest(Model):
    repeat: Count
    wall_ns: Pair
    ttft_ns: Pair
    tpot_ns: Pair | None
    measured_wall_ns: Total = Field(description="Arrival to end, as the client saw it.")
    residual_ns: int = Field(description="measured_wall_ns minus wall_ns.real: what queue and walls do not explain.")


class KindErrors(Model):
    wall_ns: ErrorStats
    gpu_busy_ns: ErrorStats
    covered_gpu_ns: ErrorStats


class RequestErrors(Model):
    wall_ns: ErrorStats
    ttft_ns: ErrorStats
    tpot_ns: ErrorStats


class Unmatched(Model):
    simulated: Count
    real: Count
    simulated_steps: list[StepId]
    real_steps: list[StepId]
    simulated_requests: list[int] = Field(description="Repeats whose request only the simulated file has.")
    real_requests: list[int]


class CoverageSummary(Model):
    kernel_fraction: float | int
    gpu_time_fraction: float | int


class CompareSummary(Model):
    wall_ns: ErrorStats
    gpu_busy_ns: ErrorStats
    covered_gpu_ns: ErrorStats | None = Field(default=None, description="On covered kernels only.")
    untraced_wall_ns: ErrorStats | None = Field(
        default=None, description="Steps timed without the profiler; absent without any."
    )
    per_kind: dict[Kind, KindErrors] | None = None
    requests: RequestErrors | None = None
    coverage: CoverageSummary | None = Field(
        default=None, description="Of the matched steps, to be read beside the errors."
    )
    unmatched: Unmatched | None = None


class Compare(Model):
    """compare.json: what `cascade compare` writes.

    Two timelines without steps give exactly the object of the API reference: the added fields are then absent.
    """

    steps: list[CompareStep]
    requests: list[CompareRequest]
    summary: CompareSummary


# What one item of these lists is called in an error.
_ITEM_WORDS = {"steps": "step", "kernels": "kernel", "requests": "request"}

M = TypeVar("M", RealTimeline, SimulatedTimeline, Compare)


def kernel_label(position: int, name: str) -> str:
    """A kernel of a step in words, its name cut to 80 characters."""
    shown = name if len(name) <= 80 else name[:79] + "…"
    return f"kernel {position} {shown!r}"


def read(path: Path, model: type[M]) -> M:
    """The model in the JSON file at `path`. Raises TimelineError naming the file, and the step and kernel at fault."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TimelineError(f"{path}: {error.strerror or error}") from error
    return parse(data, model, str(path))


def parse(data: bytes, model: type[M], source: str) -> M:
    """The model in JSON `data`. Raises TimelineError that begins with `source`."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = _where(first["loc"], data)
        raise TimelineError(f"{source}: {where}{_one_line(first['msg'])}") from error


def dump(value: RealTimeline | SimulatedTimeline | Compare) -> bytes:
    """The file's bytes: compact JSON and a newline, the same for the same value. Times without a value are left out."""
    if isinstance(value, RealTimeline):
        text = value.model_dump_json(exclude_none=True)
    else:
        # Null is a value in these two (a mean over nothing), so what is left out is what nobody set.
        text = value.model_dump_json(exclude_unset=True)
    return text.encode() + b"\n"


def json_schemas() -> dict[str, JsonSchemaValue]:
    """JSON Schema (2020-12) of each file, by file name."""
    models: dict[str, type[BaseModel]] = {
        "real_timeline": RealTimeline,
        "simulated_timeline": SimulatedTimeline,
        "compare": Compare,
    }
    schemas = {}
    for name, model in models.items():
        schema = model.model_json_schema(mode="validation")
        schemas[f"{name}.schema.json"] = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return schemas


def write_schemas(folder: Path) -> None:
    """Write each schema of `json_schemas` into `folder`, indented, keys in the order of the models."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in json_schemas().items():
        (folder / name).write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def by_kind(kinds: Iterable[Kind]) -> list[Kind]:
    """The kinds that occur, each once, in the order of KINDS."""
    found = set(kinds)
    return [kind for kind in KINDS if kind in found]


def _wrong(message: str) -> PydanticCustomError:
    # The message goes in as a value: a kernel name may hold braces, which a template would read as fields.
    return PydanticCustomError("timeline", "{message}", {"message": message})


def _misplaced(step: Step, kernel: Kernel) -> str:
    if kernel.end_ns < kernel.start_ns:
        return f"ends at {kernel.end_ns} before it starts at {kernel.start_ns}"
    return f"runs from {kernel.start_ns} to {kernel.end_ns}, outside its step, which runs from {step.start_ns} to {step.end_ns}"


def _where(loc: tuple[int | str, ...], data: bytes) -> str:
    """The place of a pydantic error in words, `step decode 3 of repeat 0, kernel 7 'gemm', end_ns: `."""
    words: list[str] = []
    node = _try_json(data)
    member = ""
    for part in loc:
        try:
            node = node[part]
        except (LookupError, TypeError):
            node = None
        if isinstance(part, int):
            words.append(_name_item(member, part, node))
        else:
            member = part
            if member not in _ITEM_WORDS:
                words.append(member)
    return ", ".join(words) + ": " if words else ""


def _name_item(member: str, position: int, node: Any) -> str:
    """Item `position` of the list `member` in words, by what the JSON there says of itself."""
    fields: dict[str, Any] = node if isinstance(node, dict) else {}
    if member == "steps" and {"repeat", "kind", "index"} <= fields.keys():
        return f"step {fields['kind']} {fields['index']} of repeat {fields['repeat']}"
    if member == "kernels" and isinstance(fields.get("name"), str):
        return kernel_label(position, fields["name"])
    return f"{_ITEM_WORDS.get(member, 'item')} {position}"


def _try_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
