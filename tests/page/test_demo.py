"""The demo, seen from the page while it plays."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.e2e.server import Server


def test_the_demo_plays_before_the_eyes(browser: Any, tmp_path: Path) -> None:
    with Server(tmp_path, CASCADE_HEARTBEAT_TIMEOUT_S="4") as server:
        context = browser.new_context()
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.add_init_script(f"sessionStorage.setItem('cascade-token', '{server.token}')")
        page.goto(server.url)
        expect(page.get_by_text("No run yet")).to_be_visible()
        demo = subprocess.Popen(
            [sys.executable, "-m", "cascade.cli", "demo", "--speed", "5"],
            env={**os.environ, "CASCADE_URL": server.url, "CASCADE_TOKEN": server.token},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert demo.stdout is not None
        try:
            page.get_by_role("link", name="demo").click()
            expect(page.get_by_role("row", name="running").first).to_be_visible(timeout=20_000)
            expect(page.get_by_role("row", name="succeeded").first).to_be_visible(timeout=60_000)
            expect(page.get_by_role("row", name="deadlock detected")).to_be_visible(timeout=60_000)
            expect(page.get_by_text("4 succeeded, 1 failed, 1 cancelled, 1 lost")).to_be_visible(timeout=60_000)
            page.get_by_role("link", name="two streams").click()
            expect(page.get_by_role("region", name="Log lines")).to_contain_text("exit detected")
            page.get_by_role("tab", name="Kernels").click()
            expect(page.get_by_text("6 kernels", exact=True)).to_be_visible()
            expect(page.get_by_role("figure").locator("canvas")).to_be_visible()
            page.get_by_role("tab", name="Files").click()
            expect(page.get_by_role("button", name="Download summary.csv")).to_be_visible()
        finally:
            said, _ = demo.communicate(timeout=60)
        assert demo.returncode == 0, said
        assert wrong == []
        context.close()
