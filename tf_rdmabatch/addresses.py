"""Addresses as text: ``host:port``, in which an IPv6 host has brackets."""

from __future__ import annotations

import ipaddress


def split_host(address: str) -> tuple[str, str]:
    """Return host, without brackets, and port of ``"host:port"``, as text and unchecked."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``"host:port"``.

    Raises
    ------
    ValueError
        The port is no number.
    """
    host, port = split_host(address)
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is an IP address that no other host can reach."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
