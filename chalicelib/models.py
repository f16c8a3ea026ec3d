"""The bodies of the API, in and out. OpenAPI is made from these same models."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from chalicelib import settings
from chalicelib.states import State

INT64_MAX = 2**63 - 1
MissingRanges = Annotated[
    list[Annotated[list[int], Field(min_length=2, max_length=2)]],
    Field(description="Inclusive ranges [first, last] of seqs that have not arrived.", examples=[[[3, 3], [7, 9]]]),
]


def _whole(value: Any) -> Any:
    """JSON has one kind of number, and JSON Schema calls 7.0 an integer: so do some languages' encoders."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=settings.NAME_MAX_CHARS)]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-11-08T08:59:06.686299Z"])]


class Model(BaseModel):
    """Strict both ways: booleans are not integers, strings are not numbers; unknown fields are ignored."""

    # Validators are made when first used: all of them would be a quarter of a cold start, and a request needs one or two.
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, defer_build=True)


class Heartbeat(Model):
    state: Literal["running", "succeeded", "failed"] = Field(description="The state the simulator is in.")
    exit_code: Annotated[int, Field(ge=-(2**63), le=INT64_MAX), BeforeValidator(_whole)] | None = Field(
        None, description="The process's exit code, with a final state."
    )
    error: str | None = Field(None, description="Why it failed. Over 4 KiB of UTF-8 it is cut, never refused.")


class HeartbeatAck(Model):
    state: State = Field(description="The state the sim is in after this call.")
    cancel: bool = Field(description="True exactly when the state is `cancelled`: stop and exit.")


class LogChunk(Model):
    seq: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(_whole)] = Field(
        description="Number of the chunk in its sim, from 0."
    )
    lines: list[str] = Field(description="Output lines, each without its newline.")


class SimulatedTimeline(Model):
    model_config = ConfigDict(strict=True, extra="allow")
    steps: list[Any]
    summary: dict[str, Any]


class StepTimelineUpload(Model):
    simulated: SimulatedTimeline = Field(description="What `cascade simulate` wrote, with `steps` and `summary`.")
    compare: dict[str, Any] | None = Field(None, description="What `cascade compare` wrote.")


class StepTimeline(Model):
    simulated: dict[str, Any]
    compare: dict[str, Any] | None


class SimFile(Model):
    name: str
    size: int = Field(description="Bytes.")
    content_type: str
    created_at: Time


class UploadBegin(Model):
    size: Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(_whole)] = Field(
        description="Bytes of the file; exactly as many must be put. More than a file may have is 413.",
        json_schema_extra={"maximum": settings.FILE_MAX_BYTES},
    )


class Upload(Model):
    id: str
    url: str = Field(description="Where to `PUT` the bytes. A path is one of this API's own, and wants the token.")
    headers: dict[str, str] = Field(description="To send with them.")
    expires_at: Time = Field(description="The put must begin before.")


def _depth(value: JsonValue) -> int:
    """How many lists and objects lie within each other; not by recursion, which has a limit of its own."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return depth


class SimSpec(Model):
    name: Name | None = Field(None, description="Shown to people. Default `#` and its position in the run.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="What this sim varies, at most 16 KiB as JSON."
    )

    @field_validator("params")
    @classmethod
    def params_fit(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """At most 16 KiB as JSON, so that a thousand sims fit one request."""
        if len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) > settings.PARAMS_MAX_BYTES:
            raise ValueError(f"params are over {settings.PARAMS_MAX_BYTES} bytes as JSON")
        if _depth(value) > settings.PARAMS_MAX_DEPTH + 1:
            raise ValueError(f"params are nested over {settings.PARAMS_MAX_DEPTH} deep")
        return value


Sims = Annotated[list[SimSpec], Field(min_length=1, max_length=settings.RUN_CREATE_MAX_SIMS)]


class RunCreate(Model):
    name: Name
    sims: Sims


class SimsAdd(Model):
    sims: Sims


class Claim(Model):
    worker: Name = Field(description="Who takes the sim, such as `host:pid`.")


class Counts(Model):
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0


class SimSummary(Model):
    id: str
    name: str
    state: State
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    last_heartbeat_at: Time | None
    exit_code: int | None
    error: str | None = Field(description="The first 256 bytes of the error; the sim has it whole.")
    kernels: int = Field(description="Kernel blocks read from the log.")
    tot_sim_cycles: int | None = Field(description="The simulator's running total after the last kernel.")
    tot_sim_insns: int | None = Field(description="Likewise; over the cycles it is the IPC of the whole sim so far.")
    log_bytes: int = Field(description="UTF-8 bytes of the log read so far, newlines not counted.")


class RunSummary(Model):
    id: str
    name: str
    created_at: Time
    counts: Counts


class RunDetail(RunSummary):
    sims: list[SimSummary]


class RunList(Model):
    runs: list[RunSummary]
    next_cursor: str | None


class SimParams(Model):
    id: str
    params: dict[str, JsonValue]


class ParamsPage(Model):
    sims: list[SimParams]
    next_cursor: str | None


class LogTotals(Model):
    chunks: int
    lines: int
    bytes: int = Field(description="UTF-8 bytes of all lines, newlines not counted.")
    next_seq: int = Field(description="One more than the highest seq stored; 0 for an empty log.")
    missing: MissingRanges


class FileTotals(Model):
    count: int
    bytes: int


class SimDetail(Model):
    id: str
    run_id: str
    name: str
    state: State
    params: dict[str, JsonValue]
    worker: str | None
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    last_heartbeat_at: Time | None
    exit_code: int | None
    error: str | None
    kernels: int
    log: LogTotals
    files: FileTotals
    step_timeline: bool = Field(description="Whether step timing was sent.")


class StoredChunk(Model):
    seq: int
    lines: list[str]


class LogPage(Model):
    chunks: list[StoredChunk]
    next_seq: int = Field(description="Ask from here next; the same number as asked when nothing new is there.")
    missing: MissingRanges


class Kernel(Model):
    index: int = Field(description="Position in the log, from 0.")
    name: str | None = Field(description="Name of the kernel that ended.")
    launch_uid: int | None = Field(description="Its launch uid; null when the log does not say which kernel ended.")
    finished: bool = Field(description="False for the block that a cycle or instruction limit cut short.")
    stream_id: int | None = Field(description="As printed: 0, or the address of a stream.")
    sim_cycles: int | None = Field(
        description="Core cycles since the block before. Of kernels that ran at the same time it is not the kernel's own "
        "duration, which the simulator does not print."
    )
    sim_insns: int | None = Field(description="Thread-level instructions since the block before.")
    ipc: float | None = Field(description="`sim_insns` over `sim_cycles`, as printed.")
    tot_sim_cycles: int | None = Field(
        description="Core cycles since the simulator began; it falls where a simulator was started again."
    )
    tot_sim_insns: int | None = Field(description="Thread-level instructions since the simulator began.")
    tot_ipc: float | None = Field(description="As printed.")
    occupancy: float | None = Field(description="Percent, as printed.")
    l2_bw_gbps: float | None = Field(description="GB/s, as printed; versions differ in the clock they divide by.")
    stats: dict[str, int | float | None] | None = Field(
        description="Every other `name = number` of the block; null when the request said `stats=false`."
    )


class KernelPage(Model):
    kernels: list[Kernel]
    next_cursor: str | None


class Health(Model):
    status: Literal["ok"]
    version: str


class FieldError(BaseModel, defer_build=True):
    type: str
    loc: list[str | int]
    msg: str
    input: JsonValue = Field(description="A short preview of what was sent.")


class Error(BaseModel, defer_build=True):
    detail: str | list[FieldError]


# Query strings: text on the wire, so numbers are parsed here and nowhere else.


class Query(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


RUNS_CURSOR = r"^[0-9]{16}-run-[0-9a-f]{12}$"
PARAMS_CURSOR = r"^[0-9]{1,10}$"
KERNELS_CURSOR = r"^[0-9]{1,10}\.[0-9]{1,4}$"


class RunsQuery(Query):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str, Field(pattern=RUNS_CURSOR)] | None = Field(
        None, description="`next_cursor` of the page before."
    )


class ParamsQuery(Query):
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        1000, description="Sims a page at most; a page stays under 5 MB."
    )
    cursor: Annotated[str, Field(pattern=PARAMS_CURSOR)] | None = Field(
        None, description="`next_cursor` of the page before."
    )


class LogsQuery(Query):
    # One more than the largest seq: the `next_seq` behind it.
    from_seq: Annotated[int, Field(ge=0, le=INT64_MAX + 1)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        100, description="Chunks a page at most; a page stays under 5 MB."
    )
    tail: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="The last N lines instead, in the chunks they came in."
    )


class KernelsQuery(Query):
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(
        100, description="Kernels a page at most; a page stays under 5 MB."
    )
    cursor: Annotated[str, Field(pattern=KERNELS_CURSOR)] | None = Field(
        None, description="`next_cursor` of the page before."
    )
    stats: bool = Field(True, description="Whether each kernel comes with its `stats`.")
