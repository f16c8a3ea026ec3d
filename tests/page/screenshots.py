"""Makes docs/screenshots anew: each view in light and dark. Needs chromium.

python -m tests.page.screenshots
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import Page, sync_playwright

from cascade import demo, sample_log
from tests.e2e.server import Server
from tests.page import sims

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SIZE = {"width": 1280, "height": 760}
PHONE = {"width": 390, "height": 844}
CONFIG = "/opt/accel-sim/gpu-simulator/gpgpu-sim/configs/tested-cfgs/SM7_QV100/gpgpusim.config"
SWEEP = [
    {"name": f"l2_mb={l2} trace={trace}", "params": {"l2_mb": l2, "trace": trace, "config": CONFIG, "clock_mhz": 1410}}
    for l2 in (1, 2, 4, 6, 8)
    for trace in (f"/data/traces/llm-decode/{kernel}/traces/kernelslist.g" for kernel in ("gemm", "attention"))
]
"""As `cascade runs create --param l2_mb=1,2,4,6,8 --param trace=@traces.txt` names them."""


def fill(client: httpx.Client) -> dict[str, str]:
    """Runs in all stages; the ids that the views name."""
    for name, count in (("nightly regression", 40), ("llm-decode, scheduler sweep", 24), ("smoke", 3)):
        _, ids = sims.new_run(client, name, [{"name": f"sim {i}"} for i in range(count)])
        for i, sim in enumerate(ids):
            if i % 8 < 5:
                sims.beat(client, sim, "succeeded", exit_code=0)
            elif i % 8 == 5:
                sims.beat(client, sim, "failed", exit_code=1, error="trace not found")
            elif i % 8 == 6:
                sims.beat(client, sim)
    other, others = sims.new_run(client, "L2 size sweep, new replacement policy", SWEEP)
    for i, sim in enumerate(others):
        sims.simulate(client, sim, kernels=10 + i % 3, seed=100 + i)
        sims.beat(client, sim, "succeeded", exit_code=0)
    run, ids = sims.new_run(client, "L2 size sweep on llm-decode", SWEEP)
    for i, sim in enumerate(ids[:9]):
        lines = list(sample_log.generate(cores=4, partitions=2, kernels=24 if i == 0 else 10 + i % 3, seed=i))
        sims.beat(client, sim)
        for seq, start in enumerate(range(0, len(lines) // (1 + i // 7), 200)):
            sims.log(client, sim, seq, *lines[start : start + 200])
    sims.log(client, ids[6], 24, "\x1b[33mwarning\x1b[0m: \x1b[1mcheckpoint\x1b[0m took 14 s", "\x1b[32mok\x1b[0m")
    for sim in ids[:5]:
        client.post(f"/api/sims/{sim}/step-timeline", json=demo.step_timing()).raise_for_status()
        client.put(f"/api/sims/{sim}/files/kernel-stats.csv", content=b"x" * 38_290).raise_for_status()
        client.put(f"/api/sims/{sim}/files/accelsim.log.gz", content=os.urandom(912_000)).raise_for_status()
        sims.beat(client, sim, "succeeded", exit_code=0)
    sims.beat(client, ids[5], "failed", exit_code=134, error="deadlock in kernel 7, core 3")
    # Its node died in the third kernel, so it began anew; two streams overlap.
    lines = list(sample_log.generate(cores=4, partitions=2, kernels=8, streams=2, concurrent=True, seed=40))
    died = [i for i, line in enumerate(lines) if line.startswith("gpgpu_silicon_slowdown")][1] + 1
    sims.beat(client, ids[9])
    sims.log(client, ids[9], 0, *lines[:died])
    sims.log(client, ids[9], 1, *lines)
    return {"run": run, "other": other, "done": ids[0], "live": ids[6], "again": ids[9], "pair": others[0]}


VIEWS = {
    "runs": ("#/", "nightly regression"),
    "run": ("#/runs/{run}?x=l2_mb&by=trace", "Cycles of 10 sims"),
    "log": ("#/sims/{live}", "checkpoint"),
    "kernels": ("#/sims/{done}?tab=kernels", "24 kernels, "),
    "attempts": ("#/sims/{again}?tab=kernels", "The log has the kernels of"),
    "timing": ("#/sims/{done}?tab=timing", "15 decode steps; simulated"),
    "files": ("#/sims/{done}?tab=files", "kernel-stats.csv"),
    "compare": ("#/compare?a={run}&b={other}&sa={done}&sb={pair}", "cycles, B"),
}


def shoot(page: Page, url: str, words: str, path: Path) -> None:
    """One picture, once its words are there and its charts drawn."""
    page.goto(url)
    page.get_by_text(words).first.wait_for()
    page.wait_for_timeout(500)
    page.screenshot(path=path, full_page="phone" not in path.name)


def main() -> None:
    """Write all pictures."""
    chromium = shutil.which("chromium") or sys.exit("screenshots: no chromium: apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server, sync_playwright() as playwright:
        with server.client() as client:
            ids = fill(client)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for name, size in (("", SIZE), ("phone-", PHONE)):
                context = browser.new_context(color_scheme=scheme, viewport=size)
                page = context.new_page()
                if not name:
                    shoot(page, server.url, "Where is the token?", FOLDER / f"token-{scheme}.png")
                context.add_init_script(
                    f"if (location.protocol === 'http:') sessionStorage.setItem('cascade-token', '{server.token}')"
                )
                for view, (address, words) in VIEWS.items():
                    if not name or view in ("run", "log"):
                        # From elsewhere: a change of the part behind # alone loads nothing anew.
                        page.goto("data:,")
                        shoot(
                            page, f"{server.url}/{address.format(**ids)}", words, FOLDER / f"{name}{view}-{scheme}.png"
                        )
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
