"""Whether a bearer token is one of those that are valid. Pure: the upload front door needs it too."""

import hmac

UNAUTHORIZED = "missing or wrong token: send Authorization: Bearer <token>"


def valid(secret: str) -> list[bytes]:
    """The tokens of a secret: one, or two apart by a blank while one is being replaced."""
    return [token.encode() for token in secret.split()]


def matches(header: str, tokens: list[bytes]) -> bool:
    """Whether an Authorization header carries one of `tokens`. Takes the same time whatever is wrong with it."""
    scheme, _, given = header.strip().partition(" ")
    sent = given.strip().encode("utf-8", "surrogatepass")
    found = [hmac.compare_digest(sent, token) for token in tokens]
    return scheme.lower() == "bearer" and any(found)
