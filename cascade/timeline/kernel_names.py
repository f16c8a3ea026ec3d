"""When two names mean the same kernel, though one tool writes it mangled and another does not.

A profiler shows `void at::native::copy<4>(int)`; the simulator, fed by a binary tracer, `_ZN2at6native4copyILi4EEEvi`.
What can be compared without a demangler is the qualified name up to its first template argument or parameter.
"""

import re

# The head of an Itanium-mangled function name: _Z, for a nested name N and its qualifiers, then length and identifier.
_MANGLED = re.compile(r"_Z(?:L|N[VKr]*(?:St)?)?(?=\d)")
_IDENTIFIER = re.compile(r"(\d+)")
_ANONYMOUS = "(anonymous namespace)"


def names_agree(one: str, other: str) -> bool:
    """Whether two kernel names can be of one kernel: equal, or one is mangled and their qualified names are equal."""
    one, other = one.strip(), other.strip()
    if one == other:
        return True
    if one.startswith("_Z") == other.startswith("_Z"):
        return False
    mangled, plain = (one, other) if one.startswith("_Z") else (other, one)
    path = _mangled_path(mangled)
    if not path:
        return False
    shown = _plain_path(plain)
    # Some tools show the function's bare name, without namespaces.
    return shown == path or (len(shown) == 1 and shown[0] == path[-1])


def _mangled_path(name: str) -> list[str]:
    """`_ZN2at6native4copyILi4EEEvi` -> ["at", "native", "copy"]; empty when it is not understood."""
    head = _MANGLED.match(name)
    if head is None:
        return []
    path: list[str] = ["std"] if "St" in head[0] else []
    at = head.end()
    while (length := _IDENTIFIER.match(name, at)) is not None:
        at = length.end() + int(length[1])
        if at > len(name):
            return []
        part = name[length.end() : at]
        path.append(_ANONYMOUS if part.startswith("_GLOBAL__N") else part)
        if not head[0].startswith("_ZN"):
            break  # what follows are the parameters
    return path


def _plain_path(name: str) -> list[str]:
    """`void at::native::copy<4>(int)` -> ["at", "native", "copy"]."""
    text = name.replace(_ANONYMOUS, "\0")
    text = re.split(r"[<(]", text, maxsplit=1)[0].strip()
    text = text.rsplit(" ", 1)[-1]  # without the return type
    return [part.replace("\0", _ANONYMOUS) for part in text.split("::")]
