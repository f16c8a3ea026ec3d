"""A complete Cascade client in Python with only the standard library. Usage: client.py SIM LOG [FILE...]"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

URL, TOKEN = os.environ["CASCADE_URL"], os.environ["CASCADE_TOKEN"]


def call(method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """Every call is safe to repeat, so it is repeated: after faults of the network, 429 and 5xx."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type}
    for attempt in range(10):
        try:
            request = urllib.request.Request(f"{URL}/api{path}", body, headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            if error.code != 429 and error.code < 500:
                raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from None
        except OSError:
            pass
        time.sleep(min(0.5 * 2**attempt, 15))
    raise SystemExit(f"{method} {path}: no answer")


def main(sim: str, log: str, *files: str) -> None:
    over, cancelled = threading.Event(), threading.Event()

    def beat() -> None:
        while not over.wait(5):
            if json.loads(call("POST", f"/sims/{sim}/heartbeat", b'{"state": "running"}'))["cancel"]:
                cancelled.set()

    # 1. Alive, and again every few seconds whatever else happens.
    call("POST", f"/sims/{sim}/heartbeat", b'{"state": "running"}')
    thread = threading.Thread(target=beat)
    thread.start()
    # 2. The log in chunks, numbered from 0. A real client reads it from the simulator as it grows.
    lines = Path(log).read_text(errors="replace").split("\n")
    for seq, start in enumerate(range(0, len(lines), 200)):
        if cancelled.is_set():
            break
        chunk = {"seq": seq, "lines": lines[start : start + 200]}
        call("POST", f"/sims/{sim}/logs", json.dumps(chunk).encode())
    # 3. Output files.
    for file in files:
        call("PUT", f"/sims/{sim}/files/{Path(file).name}", Path(file).read_bytes(), "application/octet-stream")
    over.set()
    thread.join()
    # 4. The end, once. After a cancel this changes nothing.
    ack = json.loads(call("POST", f"/sims/{sim}/heartbeat", b'{"state": "succeeded", "exit_code": 0}'))
    print(ack["state"])


if __name__ == "__main__":
    main(*sys.argv[1:])
