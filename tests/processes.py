"""Processes that tests find again by something in their command line."""

from __future__ import annotations

import time
from pathlib import Path


def alive(marker: str) -> list[int]:
    """Return the processes whose command line has the marker."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and marker in (folder / "cmdline").read_text(
                errors="replace"
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def wait_until_gone(marker: str, seconds: float) -> list[int]:
    """Return what is left of them after that time; nothing as soon as they are gone."""
    until = time.monotonic() + seconds
    while alive(marker) and time.monotonic() < until:
        time.sleep(0.02)
    return alive(marker)
