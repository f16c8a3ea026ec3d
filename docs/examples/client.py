"""A complete Cascade client in Python with only the standard library. Usage: client.py SIM LOG [FILE...]"""

import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

URL, TOKEN = os.environ["CASCADE_URL"], os.environ["CASCADE_TOKEN"]
LINES = 1000  # a chunk; a real client sends what came in a second, at most about 1 MB


class Failed(Exception):
    """The call was refused, or never answered."""


def call(method: str, path: str, body: bytes | None = None, tries: int = 10, timeout: float = 60) -> Any:
    """The answer's JSON. Every call is safe to repeat, so it is: after faults of the network, 408, 429 and 5xx."""
    kind = "application/octet-stream" if method == "PUT" else "application/json"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    reason, pause = "", 0.0
    for attempt in range(tries):
        time.sleep(pause)
        pause = random.uniform(0.5, 1) * min(0.5 * 2**attempt, 15)
        try:
            request = urllib.request.Request(f"{URL}/api{path}", body, headers, method=method)
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.read().decode(errors='replace')}"
            if error.code not in (408, 429) and error.code < 500:
                break
            asked = error.headers.get("Retry-After", "")
            if asked.isdigit():
                pause += min(int(asked), 300)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error)
    raise Failed(f"{method} {path}: {reason}")


def main(sim: str, log: str, *files: str) -> str:
    over, cancelled = threading.Event(), threading.Event()

    def beat(state: str = "running", tries: int = 10, **more: Any) -> str:
        ack = call("POST", f"/sims/{sim}/heartbeat", json.dumps({"state": state, **more}).encode(), tries, timeout=10)
        if ack["cancel"]:
            cancelled.set()
        return str(ack["state"])

    def beat_on() -> None:
        while not over.wait(5):
            try:
                beat(tries=1)  # a beat that waits for its repeats would hold up the next one
            except Failed as error:
                print(error, file=sys.stderr)

    # 1. Alive, and again every few seconds whatever else happens.
    beat()
    beats = threading.Thread(target=beat_on)
    beats.start()
    try:
        # 2. The log in chunks, numbered from 0. A real client reads it from the simulator as it grows.
        lines = Path(log).read_text(errors="replace").split("\n")
        chunks = [lines[start : start + LINES] for start in range(0, len(lines), LINES)]

        def send(seq: int) -> None:
            call("POST", f"/sims/{sim}/logs", json.dumps({"seq": seq, "lines": chunks[seq]}).encode())

        for seq in range(len(chunks)):
            if cancelled.is_set():
                break  # a real client stops the simulator here
            send(seq)
        # 3. Output files.
        for file in files:
            call("PUT", f"/sims/{sim}/files/{Path(file).name}", Path(file).read_bytes())
        # 4. What was lost although it was acknowledged.
        for first, last in call("GET", f"/sims/{sim}")["log"]["missing"]:
            for seq in range(first, min(last + 1, len(chunks))):
                send(seq)
    finally:
        over.set()
        beats.join()
    # 5. The end, once, last.
    if cancelled.is_set():
        return beat("failed", error="cancelled")  # nothing overwrites a cancel: the answer is `cancelled`
    return beat("succeeded", exit_code=0)


if __name__ == "__main__":
    try:
        state = main(*sys.argv[1:])
    except Failed as failed:
        sys.exit(str(failed))
    print(state)
    sys.exit(state != "succeeded")
