"""Parsers of the benchmarks' arguments: each raises argparse's error, which says what is wrong."""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable
from typing import Any

MAX_BYTES = 1 << 30
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def list_of(parse: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return a parser of comma-separated words, each parsed by `parse`."""

    def parse_list(text: str) -> list[Any]:
        return list(dict.fromkeys(parse(word.strip()) for word in text.split(",")))

    return parse_list


def names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a parser of a comma-separated list of `known` names."""

    def parse(word: str) -> str:
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(known)}")
        return word

    return list_of(parse)


def integer(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {most}"
            )
        return int(text)

    return parse


def multiple(step: int, least: int, most: int) -> Callable[[str], int]:
    """Return a parser of a size that is a multiple of `step`."""

    def parse(text: str) -> int:
        value = size_in_bytes(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r} is less than {least}")
        if value % step != 0 or value > most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of {step} up to {most}")
        return value

    return parse


def size_in_bytes(text: str) -> int:
    """Parse a size in bytes, such as 4KiB."""
    match = re.fullmatch(r"(\d{1,12}) ?([KMG]iB|B|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 64, 4KiB or 1MiB")
    value = int(match[1]) * UNITS[match[2]]
    if not 1 <= value <= MAX_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 1 byte and 1 GiB")
    return value


def seconds(text: str) -> float:
    """Parse a time in seconds."""
    if not re.fullmatch(r"\d{1,4}(\.\d*)?|\.\d+", text) or not 0.01 <= float(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time from 0.01 to 3600 seconds")
    return float(text)


def address(text: str) -> str:
    """Parse an IP address, as the host part of an address with a port."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address") from None
    return f"[{parsed}]" if parsed.version == 6 else str(parsed)
