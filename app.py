"""The API, endpoint by endpoint, and the scheduled sweep. Each route parses, calls one function, answers."""

import gc
from collections.abc import Callable
from typing import Any

gc.disable()  # until everything is imported: nothing of that is garbage, and looking is a twentieth of a cold start

from chalice.app import Chalice, Rate

from chalicelib import files, http, kernels, logs, names, openapi, page, runs, settings, sims, stored, sweep, timing
from chalicelib.http import Endpoint, Request, Response
from chalicelib.models import (
    Claim,
    Health,
    Heartbeat,
    HeartbeatAck,
    KernelPage,
    KernelsQuery,
    LogChunk,
    LogPage,
    LogsQuery,
    ParamsPage,
    ParamsQuery,
    RunCreate,
    RunDetail,
    RunList,
    RunsQuery,
    SimDetail,
    SimFile,
    SimsAdd,
    SimSummary,
    StepTimeline,
    StepTimelineUpload,
    Upload,
    UploadBegin,
)  # fmt: skip

app = Chalice(app_name="cascade")
# What API Gateway must not read as text: gzip, and what curl calls a body that it is not told the type of.
app.api.binary_types = [*app.api.binary_types, "application/gzip", "application/x-www-form-urlencoded"]
ENDPOINTS: list[Endpoint] = []

NO_RUN, NO_SIM = {404: "No run has this id."}, {404: "No sim has this id."}
BAD_NAME = {422: f"`name` does not match {names.NAME_PATTERN}."}
KEY = {"Idempotency-Key": "Any text of the caller's own; a repeat within a day gives the first answer again."}
REDIRECT = {302: "Too large to send inline: a short-lived URL of the same bytes."}


def endpoint(method: str, path: str, summary: str, **more: Any) -> Callable[[Callable[[Request], Any]], Any]:
    """Add a handler to the API's table."""

    def add(handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        ENDPOINTS.append(Endpoint(method, path, handler, summary, **more))
        return handler

    return add


# What a simulator calls.


@endpoint(
    "POST", "/api/sims/{sim_id}/heartbeat", "Send a heartbeat", body=Heartbeat, returns=HeartbeatAck, errors=NO_SIM
)
def send_heartbeat(request: Request) -> HeartbeatAck:
    return sims.beat(request.path["sim_id"], request.body)


@endpoint("POST", "/api/sims/{sim_id}/logs", "Send a chunk of log lines", body=LogChunk, status=204, errors=NO_SIM)
def send_log_chunk(request: Request) -> None:
    logs.append(request.path["sim_id"], request.body.seq, request.body.lines)


@endpoint(
    "POST", "/api/sims/{sim_id}/step-timeline", "Send step timing", body=StepTimelineUpload, status=204, errors=NO_SIM
)
def send_step_timeline(request: Request) -> None:
    timing.put(request.path["sim_id"], request.raw)


@endpoint(
    "PUT",
    "/api/sims/{sim_id}/files/{name}",
    "Upload an output file",
    raw_body=True,
    returns=SimFile,
    headers_in={files.UPLOAD_HEADER: "The upload that these bytes are of, where an upload's `headers` say so."},
    errors={
        **NO_SIM,
        **BAD_NAME,
        409: "The upload that was named is of another name or size, or has expired.",
        413: "The file is over 64 MiB, or the sim's files would pass 256 MiB.",
        415: "Behind API Gateway: the type is not application/octet-stream, and the bytes were changed on the way.",
    },
)
def upload_file(request: Request) -> SimFile:
    sim_id, name = request.path["sim_id"], names.checked_name(request.path["name"])
    upload_id = request.headers.get(files.UPLOAD_HEADER)
    if upload_id is not None:
        return files.receive(sim_id, name, upload_id, request.raw)
    return files.put(sim_id, name, request.raw)


@endpoint(
    "POST",
    "/api/sims/{sim_id}/uploads/{name}",
    "Begin an upload past the app, of a file too large for a request to it",
    body=UploadBegin,
    returns=Upload,
    status=201,
    errors={**NO_SIM, 413: "The file is over 64 MiB, or the sim's files would pass 256 MiB."},
)
def begin_upload(request: Request) -> Upload:
    return files.begin(request.path["sim_id"], names.checked_name(request.path["name"]), request.body.size)


@endpoint(
    "POST",
    "/api/sims/{sim_id}/uploads/{name}/{upload_id}",
    "End an upload: what was put to its URL becomes the file",
    returns=SimFile,
    errors={**NO_SIM, **BAD_NAME, 409: "No bytes of this upload are stored, or it has expired."},
)
def complete_upload(request: Request) -> SimFile:
    name = names.checked_name(request.path["name"])
    return files.complete(request.path["sim_id"], name, request.path["upload_id"])


# Runs.


@endpoint(
    "POST",
    "/api/runs",
    "Create a run of queued sims",
    body=RunCreate,
    returns=RunDetail,
    status=201,
    headers_in=KEY,
    errors={
        404: "The run of this Idempotency-Key was deleted.",
        409: "The Idempotency-Key was used with another body.",
    },
)
def create_run(request: Request) -> RunDetail:
    return runs.create(request.body.name, request.body.sims, http.idempotency_key(request))


@endpoint("GET", "/api/runs", "List runs, newest first", query=RunsQuery, returns=RunList)
def list_runs(request: Request) -> RunList:
    return runs.listing(request.query.limit, request.query.cursor)


@endpoint("GET", "/api/runs/{run_id}", "Show a run with its sims", returns=RunDetail, errors=NO_RUN)
def show_run(request: Request) -> RunDetail:
    return runs.detail(request.path["run_id"])


@endpoint(
    "GET",
    "/api/runs/{run_id}/params",
    "List the params of a run's sims, in their order",
    query=ParamsQuery,
    returns=ParamsPage,
    errors=NO_RUN,
)
def list_params(request: Request) -> ParamsPage:
    return runs.params(request.path["run_id"], request.query.limit, request.query.cursor)


@endpoint(
    "POST",
    "/api/runs/{run_id}/sims",
    "Add sims to a run",
    body=SimsAdd,
    returns=list[SimSummary],
    status=201,
    headers_in=KEY,
    errors={**NO_RUN, 409: "The Idempotency-Key was used with another body, or the run is full."},
)
def add_sims(request: Request) -> list[SimSummary]:
    return runs.add(request.path["run_id"], request.body.sims, http.idempotency_key(request))


@endpoint(
    "POST",
    "/api/runs/{run_id}/claim",
    "Claim one queued sim",
    body=Claim,
    returns=SimDetail,
    headers_in=KEY,
    also={204: "No sim of the run is queued."},
    errors={**NO_RUN, 409: "The Idempotency-Key was used by another worker."},
)
def claim_sim(request: Request) -> SimDetail | None:
    sim_id = runs.claim(request.path["run_id"], request.body.worker, http.idempotency_key(request))
    return None if sim_id is None else sims.detail(sim_id, logs.totals, files.totals)


@endpoint("POST", "/api/runs/{run_id}/cancel", "Cancel what has not finished", returns=RunDetail, errors=NO_RUN)
def cancel_run(request: Request) -> RunDetail:
    runs.cancel(request.path["run_id"])
    return runs.detail(request.path["run_id"])


@endpoint(
    "DELETE",
    "/api/runs/{run_id}",
    "Delete a run and everything of it",
    status=204,
    errors={**NO_RUN, 409: "A sim of the run is running."},
)
def delete_run(request: Request) -> None:
    runs.delete(request.path["run_id"])


# Sims and results.


@endpoint("GET", "/api/sims/{sim_id}", "Show a sim", returns=SimDetail, errors=NO_SIM)
def show_sim(request: Request) -> SimDetail:
    return sims.detail(request.path["sim_id"], logs.totals, files.totals)


@endpoint("POST", "/api/sims/{sim_id}/cancel", "Cancel a sim", returns=SimDetail, errors=NO_SIM)
def cancel_sim(request: Request) -> SimDetail:
    sims.cancel(request.path["sim_id"])
    return sims.detail(request.path["sim_id"], logs.totals, files.totals)


@endpoint(
    "GET",
    "/api/sims/{sim_id}/logs",
    "Read the log: a page of chunks, its tail, or all of it as text/plain",
    query=LogsQuery,
    returns=LogPage,
    errors=NO_SIM,
    also=REDIRECT,
)
def read_log(request: Request) -> LogPage | Response:
    sim_id, query = request.path["sim_id"], request.query
    if query.tail is not None:
        return logs.tail(sim_id, query.tail)
    if http.prefers_text(request):
        return http.stream(logs.text(sim_id), "text/plain; charset=utf-8", f"{sim_id}.log")
    return logs.page(sim_id, query.from_seq, query.limit)


@endpoint(
    "GET",
    "/api/sims/{sim_id}/kernels",
    "List kernels in log order",
    query=KernelsQuery,
    returns=KernelPage,
    errors=NO_SIM,
)
def list_kernels(request: Request) -> dict[str, Any]:
    query = request.query
    return kernels.page(request.path["sim_id"], query.limit, query.cursor, query.stats)


@endpoint("GET", "/api/sims/{sim_id}/kernels.csv", "All kernels as CSV", media="text/csv", errors=NO_SIM, also=REDIRECT)
def read_kernels_csv(request: Request) -> Response:
    sim_id = request.path["sim_id"]
    return http.stream(kernels.as_csv(sim_id), "text/csv; charset=utf-8", f"{sim_id}-kernels.csv")


@endpoint(
    "GET",
    "/api/sims/{sim_id}/step-timeline",
    "Read step timing",
    returns=StepTimeline,
    errors={404: "No sim has this id, or it has no step timing."},
    also=REDIRECT,
)
def read_step_timeline(request: Request) -> Response:
    return http.json_response(200, timing.get(request.path["sim_id"]))


@endpoint("GET", "/api/sims/{sim_id}/files", "List output files by name", returns=list[SimFile], errors=NO_SIM)
def list_files(request: Request) -> list[SimFile]:
    return files.listing(request.path["sim_id"])


@endpoint(
    "GET",
    "/api/sims/{sim_id}/files/{name}",
    "Download an output file",
    media="*/*",
    errors={404: "No sim has this id, or it has no such file.", **BAD_NAME},
    also=REDIRECT,
)
def download_file(request: Request) -> Response:
    sim_id, name = request.path["sim_id"], names.checked_name(request.path["name"])
    if settings.direct_downloads():
        info, body = files.read(sim_id, name)
        return http.attachment(body, info.content_type, name)
    return http.redirect(files.url(sim_id, name))


# About the service itself.


@endpoint("GET", "/api/health", "Whether the service answers", returns=Health, public=True)
def health(request: Request) -> Health:
    return Health(status="ok", version=openapi.VERSION)


@endpoint("GET", "/api/openapi.json", "This document", media="application/json", public=True)
def read_openapi(request: Request) -> Response:
    return http.json_response(200, openapi.text(ENDPOINTS))


@app.schedule(Rate(1, unit=Rate.MINUTES), name="sweep")
def sweep_function(event: Any) -> dict[str, int]:
    return sweep.sweep()


@app.on_cw_event(stored.event_pattern(), name="stored")
def stored_function(event: Any) -> dict[str, str]:
    return stored.handle(event.detail)


# The page is no part of the API that OpenAPI describes.


def show_page(request: Request) -> Response:
    return page.index(request.headers)


def read_static(request: Request) -> Response:
    return page.static(request.path["version"], request.path["name"], request.headers)


PAGE = [
    Endpoint("GET", "/", show_page, "The page", public=True),
    Endpoint("GET", "/static/{version}/{name}", read_static, "A file of the page", public=True),
]

http.mount(app, [*ENDPOINTS, *PAGE])

# Nor is it later: else the first object made after this line would have the collector look at all that was imported.
gc.freeze()
gc.enable()
