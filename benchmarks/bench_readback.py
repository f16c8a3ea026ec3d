"""A log of 1 GB into the local server and back out as text: rates, and what the server's memory does.

`CASCADE_BENCH_LOG_MB` sets another size.
"""

import hashlib
import json
import os
import secrets
import sys
import tempfile
import time

import httpx

from benchmarks.bench_server import Server
from cascade.sample_log import generate

MB = 1_000_000
SIZE = int(os.environ.get("CASCADE_BENCH_LOG_MB", "1000")) * MB
CHUNK_LINES = 20_000


def main() -> None:
    """Measure and print."""
    token = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as folder:
        server = Server([sys.executable, "-m", "cascade.cli", "serve"], folder, token)
        try:
            measure(server, token)
        finally:
            server.stop()


def measure(server: Server, token: str) -> None:
    """All rows."""
    lines = list(generate(kernels=40, seed=3))
    chunk = (lines * (CHUNK_LINES // len(lines) + 1))[:CHUNK_LINES]
    text = ("\n".join(chunk) + "\n").encode()
    count = SIZE // len(text) + 1
    path = f"/api/sims/{server.sims[0]}/logs"
    sent, got = hashlib.sha256(), hashlib.sha256()
    idle = server.memory("VmRSS")
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=300) as client:
        start = time.perf_counter()
        for seq in range(count):
            body = json.dumps({"seq": seq, "lines": chunk})
            client.post(path, content=body, headers={"Content-Type": "application/json"}).raise_for_status()
            sent.update(text)
        wrote = time.perf_counter() - start
        peak_write = server.memory("VmHWM")
        start = time.perf_counter()
        with client.stream("GET", path, headers={"Accept": "text/plain"}) as answer:
            for piece in answer.iter_bytes():
                got.update(piece)
        read = time.perf_counter() - start
        peak_read = server.memory("VmHWM")
    assert sent.hexdigest() == got.hexdigest(), "what came back is not what was sent"
    size = count * len(text) / MB
    print("| what | measured |\n|---|---|")
    print(
        f"| log of {size:.0f} MB in chunks of {CHUNK_LINES:,} lines ({len(text) / MB:.1f} MB), stored and parsed, MB/s | {size / wrote:.0f} |"
    )
    print(f"| read back as text, MB/s | {size / read:.0f} |")
    print(
        f"| server's memory idle; most while writing; most while reading, MiB | {idle:.0f}; {peak_write:.0f}; {peak_read:.0f} |"
    )


if __name__ == "__main__":
    main()
