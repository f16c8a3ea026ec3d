"""A run that is deleted between two looks of one request: the request hears 404, as it would a moment later."""

import random
from typing import Any

import pytest

from chalicelib import blobs, logs
from tests.aws import Api
from tests.contract.test_logs import CHUNKS, send

NOISE = random.Random(1).randbytes(20_000).hex()
"""More than an item holds, however it is compressed."""


@pytest.mark.parametrize(
    "path",
    ["logs", "logs?tail=3", "logs as text", "kernels", "kernels.csv", "step-timeline", "files/a", "a chunk"],
)
def test_bytes_that_went_with_their_run_are_404(api: Api, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "ITEM_MAX_BYTES", 0)
    run, (sim,) = api.new_run()
    for seq, lines in enumerate(CHUNKS):
        send(api, sim, seq, [*lines, NOISE])
    send(api, sim, len(CHUNKS) + 1, [NOISE])
    api.post(f"/api/sims/{sim}/step-timeline", {"simulated": {"steps": [NOISE], "summary": {}}})
    api.put(f"/api/sims/{sim}/files/a", b"a", headers={"Content-Type": "application/octet-stream"})
    get, deleted = blobs.get, []

    def deleted_first(*which: Any) -> bytes:
        if not deleted:
            deleted.append(api.delete(f"/api/runs/{run}").status)
        return get(*which)

    monkeypatch.setattr(blobs, "get", deleted_first)
    if path == "a chunk":
        answer = api.post(f"/api/sims/{sim}/logs", {"seq": len(CHUNKS), "lines": ["a"]})
    elif path == "logs as text":
        answer = api.get(f"/api/sims/{sim}/logs", headers={"Accept": "text/plain"})
    else:
        answer = api.get(f"/api/sims/{sim}/{path}")
    assert deleted == [204]
    assert answer.status == 404
