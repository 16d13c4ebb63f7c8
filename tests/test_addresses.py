"""Addresses as text."""

from __future__ import annotations

import pytest

from tf_rdmabatch.addresses import is_loopback, split_address, split_host


def test_split() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_host("node1:80") == ("node1", "80")
    with pytest.raises(ValueError, match="invalid literal"):
        split_address("node1:http")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.9.0.1", "fe80::1%eth0", "node1", ""])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)
