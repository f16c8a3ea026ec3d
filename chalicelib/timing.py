"""Step timing of a sim: the two objects as they were sent, to the character."""

import json
import zlib

from chalicelib import blobs, sims, table
from chalicelib.errors import NotFound
from chalicelib.logs import INLINE_MAX_BYTES
from chalicelib.table import Item

_WHITESPACE = " \t\n\r"


def members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as the very text it was written in.

    Parsing and writing again would lose what JSON values are made of here: 0 against 0.0, digits beyond a double,
    the order of keys. `text` must already be known to be a JSON object.
    """
    decoder = json.JSONDecoder()
    found: dict[str, str] = {}
    at = text.index("{") + 1
    while True:
        at = _skip(text, at)
        if text[at] == "}":
            return found
        name, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)  # past the colon
        _, at = decoder.raw_decode(text, start)
        found[name] = text[start:at]
        at = _skip(text, at)
        at += text[at] == ","


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITESPACE:
        at += 1
    return at


def put(sim_id: str, body: bytes) -> None:
    """Store `simulated` and `compare` of a validated body, replacing what was sent before. Raises NotFound."""
    head = sims.head(sim_id)
    raw = members(body.decode())
    packed = zlib.compress(f'{{"simulated":{raw["simulated"]},"compare":{raw.get("compare", "null")}}}'.encode())
    item: Item = {"pk": sim_id, "sk": sims.TIMING}
    if len(packed) <= INLINE_MAX_BYTES:
        item["data"] = packed
    else:
        sims.expect_object(head[sims.HOT])
        item["blob"] = f"timing/{sim_id}/{sims.new_token()}"
        item["version"] = blobs.put(item["blob"], packed)
    old = table.replace(item)
    if old and old.get("blob") and old["blob"] != item.get("blob"):
        blobs.delete(old["blob"], old["version"])


def get(sim_id: str) -> str:
    """JSON text `{"simulated": ..., "compare": ...}`. Raises NotFound for the sim, or when none was sent."""
    sims.head(sim_id)
    while True:
        item = table.get(sim_id, sims.TIMING)
        if item is None:
            raise NotFound(f"sim {sim_id} has no step timing")
        try:
            packed = item["data"] if "data" in item else blobs.get(item["blob"], item["version"])
        except blobs.Gone:
            if table.get(sim_id, sims.TIMING) == item:
                raise
            continue  # replaced meanwhile
        return zlib.decompress(packed).decode()
