"""What the launcher and its program on another host say to each other: a JSON object a line."""

from __future__ import annotations

import json
from typing import Any

# Begins each line of the program there: a shell's start-up files may print lines of their own.
MARK = b"tf-rdmabatch:"
# Of one line; whoever sends more is no such program.
MAX_BYTES = 1 << 22


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as a line."""
    return MARK + json.dumps(message).encode() + b"\n"


class Lines:
    """Puts messages together from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._partial = b""

    def take(self, chunk: bytes) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the messages that are complete now, and the lines that are none.

        Raises
        ------
        ValueError
            A line is too long, or has the mark and is no message.
        """
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        if len(self._partial) > MAX_BYTES:
            raise ValueError(f"a line of more than {MAX_BYTES} bytes")
        messages: list[dict[str, Any]] = []
        others: list[str] = []
        for line in lines:
            if not line.startswith(MARK):
                others.append(line.decode(errors="replace"))
                continue
            message = json.loads(line[len(MARK) :])
            if not isinstance(message, dict):
                raise ValueError(f"not an object: {message!r}")
            messages.append(message)
        return messages, others


def to_text(chunk: bytes) -> str:
    """Return bytes as text that `to_bytes` turns into the same bytes, wherever they are cut."""
    return chunk.decode(errors="surrogateescape")


def to_bytes(text: str) -> bytes:
    """Return the bytes that `to_text` got."""
    return text.encode(errors="surrogateescape")
