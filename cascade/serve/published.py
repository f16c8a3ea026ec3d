"""Stored files under their own names: `files/<sim_id>/<name>` of the bucket as `<data dir>/files/<sim_id>/<name>`."""

import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

PREFIX = "files/"
_PART = r"(?!\.{1,2}/|\.{1,2}$)[A-Za-z0-9._-]{1,255}"
_KEY = re.compile(rf"files/({_PART})/({_PART})")


class Published:
    """A folder that mirrors the current objects below `files/`, each a hard link to the object's own file.

    A name appears, changes and vanishes in one step. Links cost no space; where the file system has none, files are
    copied.

    Args:
        root: the mirror.
        scratch: a folder of the same file system for links that are not yet in place.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        self.scratch = scratch

    def set(self, key: str, file: Path | None) -> None:
        """Publish `file` as the object of `key`, or take the name away. Keys elsewhere are nobody's business here.

        A file that somebody has removed is not shown and logged: it is no reason to withhold the others.
        """
        match = _KEY.fullmatch(key)
        if not match:
            return
        if file and not file.exists():
            logger.error("the bytes of %s are gone: %s was removed", key, file)
            file = None
        folder, target = self.root / match[1], self.root / match[1] / match[2]
        if file is None:
            target.unlink(missing_ok=True)
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
            return
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        link = self.scratch / uuid.uuid4().hex
        try:
            _link(file, link)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.replace(target)
        finally:
            # Also after a success: renaming one link of a file over another one leaves both.
            link.unlink(missing_ok=True)

    def match(self, files: Mapping[str, Path | None]) -> None:
        """Make the mirror show `files` by key and no others, whatever a killed process left."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.root, self.scratch):
            folder.mkdir(mode=0o700, exist_ok=True)
        wanted = {key: file for key, file in files.items() if _KEY.fullmatch(key)}
        folders = [folder for folder in os.scandir(self.root) if folder.is_dir(follow_symlinks=False)]
        found = {
            f"{PREFIX}{folder.name}/{entry.name}": Path(entry)
            for folder in folders
            for entry in os.scandir(folder)
            if entry.is_file(follow_symlinks=False)
        }
        for key in found.keys() - wanted.keys():
            self.set(key, None)
        for key, file in wanted.items():
            if file and not (key in found and file.exists() and _same(found[key], file)):
                self.set(key, file)


def _link(file: Path, link: Path) -> None:
    try:
        os.link(file, link)
    except OSError:
        if not file.exists():
            raise
        shutil.copy2(file, link)


def _same(one: Path, other: Path) -> bool:
    a, b = one.stat(), other.stat()
    # A copy is known by its size and time, which it took over; the file of a version is never written again.
    return (a.st_ino, a.st_dev) == (b.st_ino, b.st_dev) or (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)
