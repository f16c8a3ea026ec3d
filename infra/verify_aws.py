"""Checks on a deployed stage what no emulator can show: limits, gateway errors, signatures, the front door.

    CASCADE_TOKEN=... python -m infra.verify_aws https://d111111abcdef8.cloudfront.net

It makes a run, uses it, and deletes it. Each line says what was asked, `ok` or what was answered instead; the exit code
is the number of lines that are not ok.
"""

import argparse
import gzip
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

MIB = 1024 * 1024
OCTETS = {"Content-Type": "application/octet-stream"}


class Wrong(Exception):
    """What was answered instead."""


def expect(answer: httpx.Response, status: int, detail: bool = False) -> Any:
    """The JSON of an answer with this status; `detail`: it must be an error in the one shape. Raises Wrong."""
    if answer.status_code != status:
        raise Wrong(f"{answer.status_code} {answer.text[:200]!r}, not {status}")
    value = (
        answer.json()
        if answer.content and answer.headers.get("content-type", "").startswith("application/json")
        else None
    )
    if detail and not (isinstance(value, dict) and value.keys() == {"detail"}):
        raise Wrong(f"{status} without a detail: {answer.text[:200]!r}")
    return value


class Checks:
    """The checks, on one sim of a run of its own."""

    def __init__(self, client: httpx.Client, url: str, token: str) -> None:
        self.client = client
        self.url = url
        self.token = token
        self.has_door = False
        self.run: dict[str, Any] = {}
        self.sim = ""

    def all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """(what it shows, check), in an order in which each can run."""
        yield (
            "health without a token",
            lambda: expect(self.client.get("/api/health", headers={"Authorization": ""}), 200),
        )
        yield "a run is made", self.make_run
        yield "no token: 401 as this API says it", self.unauthorized
        yield "unknown path: 404, not the gateway's 403", lambda: expect(self.client.get("/api/none"), 404, True)
        yield "root of the stage", lambda: expect(self.client.request("DELETE", "/"), 405, True)
        yield "wrong method: 405", lambda: expect(self.client.delete("/api/runs"), 405, True)
        yield "a method that the gateway does not know", self.odd_method
        yield "malformed path encoding", lambda: expect(self.client.get("/api/sims/%zz"), 404, True)
        yield "heartbeat", self.beat
        yield "Content-Encoding: gzip, inflated by the gateway", self.gzipped
        yield "application/gzip, handed on compressed", self.gzip_type
        yield "5 MB of JSON", lambda: self.chunk(2, 5_000_000, 204)
        yield (
            "a body between Lambda's 6 MB and the gateway's 10 MB: 413 with a detail",
            lambda: self.chunk(3, 7_000_000, 413),
        )
        yield "a body over the gateway's 10 MB: 413 with a detail", lambda: self.chunk(4, 11_000_000, 413)
        yield "binary bytes, whole", self.binary
        yield "a download is an attachment", self.attachment
        yield "bytes without a type: stored whole or refused", self.untyped
        yield "a file with a percent-encoded slash in its name: 422", self.encoded_slash
        yield "the whole log as text by redirect", self.text_log
        yield "64 MiB by an upload URL; one byte less is refused there", self.upload
        yield "the event of a new object ends an upload whose client left", self.event
        yield "whether a front door stands before it", self.find_door
        if self.has_door:
            yield "64 MiB by a plain PUT", self.door_64
            yield "one byte more: 413 before the body is sent", lambda: self.door_head(64 * MIB + 1, self.token, 413)
            yield "wrong token: 401 before the body is sent", lambda: self.door_head(64 * MIB, "wrong", 401)
            yield "no length: 411", self.door_chunked
            yield "headers and query of a client do not reach S3", self.door_headers
            yield "a replaced file leaves one row", self.door_replaced
        yield "the scheduled function marks a silent sim lost within three minutes", self.lost
        yield "a run is deleted", self.delete_run

    def make_run(self) -> None:
        self.run = expect(self.client.post("/api/runs", json={"name": "verify-aws", "sims": [{}, {}, {}]}), 201)
        self.sim = self.run["sims"][0]["id"]

    def unauthorized(self) -> None:
        answer = self.client.get("/api/runs", headers={"Authorization": "Bearer wrong"})
        expect(answer, 401, True)
        names = ("www-authenticate", "x-amzn-remapped-www-authenticate")  # API Gateway gives it the second
        if "Bearer" not in [answer.headers.get(name) for name in names]:
            raise Wrong(f"no WWW-Authenticate among {sorted(answer.headers)}")

    def odd_method(self) -> None:
        answer = self.client.request("TRACE", "/api/runs")
        if answer.status_code not in (403, 404, 405, 501):
            raise Wrong(str(answer.status_code))

    def beat(self) -> None:
        ack = expect(self.client.post(f"/api/sims/{self.sim}/heartbeat", json={"state": "running"}), 200)
        if ack != {"state": "running", "cancel": False}:
            raise Wrong(str(ack))

    def _lines(self, seq: int, size: int) -> bytes:
        return json.dumps({"seq": seq, "lines": ["x" * 999] * (size // 1000)}).encode()

    def gzipped(self) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        body = gzip.compress(self._lines(0, 100_000))
        expect(self.client.post(f"/api/sims/{self.sim}/logs", content=body, headers=headers), 204)

    def gzip_type(self) -> None:
        headers = {"Content-Type": "application/gzip"}
        body = gzip.compress(self._lines(1, 20_000_000))
        expect(self.client.post(f"/api/sims/{self.sim}/logs", content=body, headers=headers), 204)

    def chunk(self, seq: int, size: int, status: int) -> None:
        headers = {"Content-Type": "application/json"}
        answer = self.client.post(f"/api/sims/{self.sim}/logs", content=self._lines(seq, size), headers=headers)
        expect(answer, status, status == 413)

    def _fetched(self, name: str) -> bytes:
        answer = self.client.get(f"/api/sims/{self.sim}/files/{name}")
        expect(answer, 302)
        return httpx.get(answer.headers["location"], timeout=120).content

    def attachment(self) -> None:
        answer = self.client.get(f"/api/sims/{self.sim}/files/a.bin")
        got = httpx.get(answer.headers["location"], timeout=60).headers.get("content-disposition")
        if got != 'attachment; filename="a.bin"':
            raise Wrong(f"Content-Disposition {got}")

    def binary(self) -> None:
        body = bytes(range(256)) * 1000
        expect(self.client.put(f"/api/sims/{self.sim}/files/a.bin", content=body, headers=OCTETS), 200)
        if self._fetched("a.bin") != body:
            raise Wrong("other bytes came back")

    def untyped(self) -> None:
        body = bytes(range(256)) * 10
        answer = self.client.put(f"/api/sims/{self.sim}/files/b.bin", content=body)
        if answer.status_code == 200 and self._fetched("b.bin") != body:
            raise Wrong("other bytes were stored")
        if answer.status_code not in (200, 415):
            raise Wrong(f"{answer.status_code} {answer.text[:200]!r}")

    def encoded_slash(self) -> None:
        expect(self.client.put(f"/api/sims/{self.sim}/files/a%2Fb", content=b"x", headers=OCTETS), 422, True)

    def text_log(self) -> None:
        answer = self.client.get(f"/api/sims/{self.sim}/logs", headers={"Accept": "text/plain"})
        expect(answer, 302)
        if len(httpx.get(answer.headers["location"], timeout=120).content) < 20_000_000:
            raise Wrong("the log is short")

    def upload(self) -> None:
        body = os.urandom(MIB) * 64
        begun = expect(self.client.post(f"/api/sims/{self.sim}/uploads/big.bin", json={"size": len(body)}), 201)
        if httpx.put(begun["url"], content=body[:-1], headers=begun["headers"], timeout=300).status_code != 403:
            raise Wrong("the object store took another size than was signed")
        stored = httpx.put(begun["url"], content=body, headers=begun["headers"], timeout=300)
        if stored.status_code != 200:
            raise Wrong(f"the object store answered {stored.status_code} {stored.text[:300]!r}")
        expect(self.client.post(f"/api/sims/{self.sim}/uploads/big.bin/{begun['id']}"), 200)
        if self._fetched("big.bin") != body:
            raise Wrong("other bytes came back")

    def event(self) -> None:
        begun = expect(self.client.post(f"/api/sims/{self.sim}/uploads/left.txt", json={"size": 3}), 201)
        httpx.put(begun["url"], content=b"abc", headers=begun["headers"]).raise_for_status()
        self._until(lambda: "left.txt" in [file["name"] for file in self._files()], 60, "the file is not there")

    def _files(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = expect(self.client.get(f"/api/sims/{self.sim}/files"), 200)
        return found

    def _until(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Wrong(f"after {seconds:.0f} s {otherwise}")
            time.sleep(2)

    def find_door(self) -> None:
        self.has_door = "via" in self.client.get("/api/health").headers or "cloudfront" in self.url

    def door_64(self) -> None:
        body = os.urandom(MIB) * 64
        answer = self.client.put(f"/api/sims/{self.sim}/files/door.csv", content=body, headers=OCTETS, timeout=300)
        stored = expect(answer, 200)
        if (stored["name"], stored["size"], stored["content_type"]) != ("door.csv", len(body), "text/csv"):
            raise Wrong(str(stored))
        if self._fetched("door.csv") != body:
            raise Wrong("other bytes came back")

    def door_head(self, size: int, token: str, status: int) -> None:
        address = urlsplit(self.url)
        raw: socket.socket = socket.create_connection((address.hostname, address.port or 443), timeout=60)
        with raw, ssl.create_default_context().wrap_socket(raw, server_hostname=address.hostname) as connection:
            connection.sendall(
                f"PUT {address.path}/api/sims/{self.sim}/files/no.bin HTTP/1.1\r\nHost: {address.hostname}\r\n"
                f"Authorization: Bearer {token}\r\nContent-Length: {size}\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            line = connection.makefile("rb").readline().decode()
        if f" {status} " not in line:
            raise Wrong(line.strip())

    def door_chunked(self) -> None:
        answer = self.client.put(f"/api/sims/{self.sim}/files/c.bin", content=iter([b"abc"]), headers=OCTETS)
        expect(answer, 411, True)

    def door_headers(self) -> None:
        evil = {**OCTETS, "x-amz-acl": "public-read", "x-amz-meta-upload": "forged"}
        answer = self.client.put(f"/api/sims/{self.sim}/files/d.bin?acl&tagging", content=b"abc", headers=evil)
        expect(answer, 200)

    def door_replaced(self) -> None:
        for body in (b"first", b"second"):
            answer = self.client.put(f"/api/sims/{self.sim}/files/e.csv", content=body, headers=OCTETS)
            expect(answer, 200)
        if [file["size"] for file in self._files() if file["name"] == "e.csv"] != [6]:
            raise Wrong(str(self._files()))

    def lost(self) -> None:
        silent = expect(self.client.post(f"/api/runs/{self.run['id']}/claim", json={"worker": "verify-aws"}), 200)["id"]
        shown = lambda: expect(self.client.get(f"/api/sims/{silent}"), 200)["state"] == "lost"  # noqa: E731
        self._until(shown, 180, "it is not lost")

    def delete_run(self) -> None:
        expect(self.client.post(f"/api/runs/{self.run['id']}/cancel"), 200)
        expect(self.client.delete(f"/api/runs/{self.run['id']}"), 204)


def verify(url: str, token: str, *, quick: bool = False) -> int:
    """Run every check and print each outcome; returns how many were not ok. `quick`: none that waits for minutes."""
    wrong = 0
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        checks = Checks(client, url, token)
        for name, check in checks.all():
            if quick and name.endswith("minutes"):
                continue
            try:
                check()
                outcome = "ok"
            except (Wrong, httpx.HTTPError, OSError, ValueError, LookupError) as error:
                outcome = f"WRONG: {error or type(error).__name__}"
                wrong += 1
            print(f"{name}: {outcome}", flush=True)
            if wrong and not checks.sim:
                break
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Check on a deployed stage what no emulator can show.")
    parser.add_argument("url", help="the stage's CASCADE_URL, with or without the front door")
    parser.add_argument("--quick", action="store_true", help="leave out what waits for minutes")
    given = parser.parse_args(arguments)
    token = os.environ.get("CASCADE_TOKEN")
    if not token:
        print("error: set CASCADE_TOKEN to the stage's token", file=sys.stderr)
        return 2
    return min(verify(given.url.rstrip("/"), token, quick=given.quick), 100)


if __name__ == "__main__":
    sys.exit(main())
