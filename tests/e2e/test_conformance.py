"""Whatever fits or breaks the published OpenAPI document: no answer is a 5xx, and each is one the document allows.

`CASCADE_SCHEMATHESIS_EXAMPLES=500 pytest tests/e2e/test_conformance.py` is the long form.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.server import Server

EXAMPLES = os.environ.get("CASCADE_SCHEMATHESIS_EXAMPLES", "10")
# Random ids lead nowhere, so calls go to what is there. What is to be deleted is a run that is not.
CONFIG = """
checks.negative_data_rejection.expected-statuses = [401, 404, 405, 409, 413, 415, 422]
parameters = {{ "path.run_id" = "{run}", "path.sim_id" = "{sim}" }}

[[operations]]
include-name = "DELETE /api/runs/{{run_id}}"
parameters = {{ "path.run_id" = "run-000000000000" }}
"""


@pytest.mark.slow
def test_every_answer_is_one_that_the_document_allows(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server, server.client() as client:
        run = client.post("/api/runs", json={"name": "all", "sims": [{}, {}, {}]}).json()
        sim_id = run["sims"][0]["id"]
        client.post(f"/api/sims/{sim_id}/logs", json={"seq": 0, "lines": ["one", "two"]})
        client.post(f"/api/sims/{sim_id}/step-timeline", json={"simulated": {"steps": [], "summary": {}}})
        client.put(f"/api/sims/{sim_id}/files/kernel-stats.csv", content=b"a,b\n")
        paths = client.get("/api/openapi.json").json()["paths"]
        del paths["/api/openapi.json"]  # where the document itself comes from is not tried
        operations = sum(len(methods) for methods in paths.values())
        (tmp_path / "schemathesis.toml").write_text(CONFIG.format(run=run["id"], sim=sim_id))
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"),
                f"{server.url}/api/openapi.json",
                *("--header", f"Authorization: Bearer {server.token}", "--no-color"),
                *("--checks", "all", "--phases", "examples,coverage,fuzzing"),
                *("--max-examples", EXAMPLES, "--generation-deterministic", "--request-timeout", "30"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {operations}\n" in done.stdout, done.stdout
