"""FastAPI and SQLite, as a lab would write it in an afternoon: no parsing, no quota races, no crash story.

Run with `python -m benchmarks.baseline.server FOLDER TOKEN`; prints its URL.
"""

import json
import socket
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from pydantic import BaseModel

app = FastAPI()
local = threading.local()
settings: dict[str, str] = {}


def db() -> sqlite3.Connection:
    """This thread's connection."""
    if not hasattr(local, "db"):
        local.db = sqlite3.connect(Path(settings["folder"]) / "baseline.sqlite", isolation_level=None, timeout=30)
        local.db.execute("PRAGMA journal_mode = WAL")
        local.db.execute("PRAGMA synchronous = NORMAL")
        local.db.executescript(
            """
            CREATE TABLE IF NOT EXISTS sim (id TEXT PRIMARY KEY, state TEXT, beat REAL, exit_code INTEGER, error TEXT);
            CREATE TABLE IF NOT EXISTS chunk (sim TEXT, seq INTEGER, lines TEXT, PRIMARY KEY (sim, seq));
            CREATE TABLE IF NOT EXISTS timing (sim TEXT PRIMARY KEY, value TEXT);
            """
        )
    return local.db


def authorized(authorization: Annotated[str, Header()] = "") -> None:
    """Refuse whoever has no token."""
    if authorization != f"Bearer {settings['token']}":
        raise HTTPException(401, "unauthorized")


class Heartbeat(BaseModel):
    """A heartbeat."""

    state: Literal["running", "succeeded", "failed"]
    exit_code: int | None = None
    error: str | None = None


class Chunk(BaseModel):
    """A chunk of log lines."""

    seq: int
    lines: list[str]


@app.post("/api/sims/{sim_id}/heartbeat", dependencies=[Depends(authorized)])
def heartbeat(sim_id: str, beat: Heartbeat) -> dict[str, object]:
    """Update the sim's row unless it is final."""
    changed = db().execute(
        "UPDATE sim SET state = ?, beat = ?, exit_code = ?, error = ? "
        "WHERE id = ? AND state NOT IN ('succeeded', 'failed', 'cancelled')",
        (beat.state, time.time(), beat.exit_code, beat.error, sim_id),
    )
    row = db().execute("SELECT state FROM sim WHERE id = ?", (sim_id,)).fetchone()
    if changed.rowcount == 0 and row is None:
        raise HTTPException(404, "no such sim")
    return {"state": row[0], "cancel": row[0] == "cancelled"}


@app.post("/api/sims/{sim_id}/logs", dependencies=[Depends(authorized)], status_code=204)
def logs(sim_id: str, chunk: Chunk) -> None:
    """Store a chunk unless it is there."""
    db().execute("INSERT OR IGNORE INTO chunk VALUES (?, ?, ?)", (sim_id, chunk.seq, json.dumps(chunk.lines)))


@app.post("/api/sims/{sim_id}/step-timeline", dependencies=[Depends(authorized)], status_code=204)
async def step_timeline(sim_id: str, request: Request) -> None:
    """Keep the last one."""
    db().execute("INSERT OR REPLACE INTO timing VALUES (?, ?)", (sim_id, (await request.body()).decode()))


@app.put("/api/sims/{sim_id}/files/{name}", dependencies=[Depends(authorized)])
async def put_file(sim_id: str, name: str, request: Request) -> dict[str, object]:
    """Write the body to a file."""
    body = await request.body()
    folder = Path(settings["folder"]) / sim_id
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(body)
    return {"name": name, "size": len(body)}


@app.post("/api/runs", dependencies=[Depends(authorized)])
def create(body: dict[str, list[object] | str]) -> Response:
    """Rows for the sims of a run."""
    ids = [f"sim-{n:012x}" for n in range(len(body["sims"]))]
    db().executemany("INSERT OR REPLACE INTO sim VALUES (?, 'queued', NULL, NULL, NULL)", [(i,) for i in ids])
    return Response(json.dumps({"sims": [{"id": i} for i in ids]}), 201, media_type="application/json")


def main() -> None:
    """Serve on a free port until killed."""
    settings["folder"], settings["token"] = sys.argv[1:3]
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited; asyncio does not see to it here
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, http="httptools", loop="asyncio")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
