from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tf_rdmabatch import cli, info
from tf_rdmabatch.devices import Device, DeviceList, Gid, Port, list_devices

GID_TABLE = ["fe80:0000:0000:0000:a4bd:1cff:fef1:797e", "0000:0000:0000:0000:0000:ffff:0a09:0001"]
EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a tree as the kernel shows it, and no pyverbs."""
    monkeypatch.setitem(sys.modules, "pyverbs", None)
    add_device(tmp_path, "rxe0", "1: CA", [*GID_TABLE, EMPTY_GID], "RoCE v2")
    add_device(
        tmp_path, "siw0", "4: RNIC", ["a6bd:1cf1:797e:0000:0000:0000:0000:0000"], "IB/RoCE v1"
    )
    return tmp_path


def add_device(root: Path, name: str, node_type: str, gids: list[str], gid_type: str) -> None:
    port = root / name / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (root / name / "node_type").write_text(node_type + "\n")
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("Ethernet\n")
    for index, gid in enumerate(gids):
        (port / "gids" / str(index)).write_text(gid + "\n")
        if gid != EMPTY_GID:  # reading the type of an empty entry fails
            (port / "gid_attrs" / "types" / str(index)).write_text(gid_type + "\n")


def test_devices_from_sysfs(sysfs: Path) -> None:
    found = list_devices(sysfs)
    assert found.source == "sysfs"
    assert "pyverbs cannot be imported" in found.note
    roce, iwarp = found.devices
    gids = [
        Gid(0, "fe80::a4bd:1cff:fef1:797e", "RoCE v2"),
        Gid(1, "::ffff:10.9.0.1", "RoCE v2"),
    ]
    assert roce == Device("rxe0", "RoCE", [Port(1, "ACTIVE", "Ethernet", gids)])
    assert iwarp.protocol == "iWARP"
    assert [gid.type for gid in iwarp.ports[0].gids] == ["iWARP"]


def test_infiniband_is_told_from_roce(sysfs: Path) -> None:
    (sysfs / "rxe0" / "ports" / "1" / "link_layer").write_text("InfiniBand\n")
    device = list_devices(sysfs).devices[0]
    assert device.protocol == "InfiniBand"
    assert device.ports[0].gids[0].type == "InfiniBand"


def test_a_device_that_cannot_be_read_says_so_and_hides_no_other(sysfs: Path) -> None:
    (sysfs / "rxe0" / "ports" / "1" / "state").unlink()
    broken, other = list_devices(sysfs).devices
    assert "No such file" in broken.error
    assert other.error == ""


def test_no_device_is_an_empty_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyverbs", None)
    assert list_devices(tmp_path / "absent").devices == []


def test_huge_pages(tmp_path: Path) -> None:
    for name, total, free in (("hugepages-1048576kB", 1, 0), ("hugepages-2048kB", 64, 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nr_hugepages").write_text(f"{total}\n")
        (tmp_path / name / "free_hugepages").write_text(f"{free}\n")
    assert info.list_huge_pages(tmp_path) == [
        info.HugePages(2 << 20, 64, 60),
        info.HugePages(1 << 30, 1, 0),
    ]
    assert info.list_huge_pages(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (8 << 20, "8 MiB"), (3 << 39, "1.5 TiB")],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert info.format_bytes(count) == text
    assert info.format_limit(count) == text
    assert info.format_limit(None) == "unlimited"


def test_the_table_shows_each_reason_and_address() -> None:
    port = Port(1, "ACTIVE", "Ethernet", [Gid(1, "::ffff:10.9.0.1", "RoCE v2")])
    devices = [Device("rxe0", "RoCE", [port]), Device("bad0", "unknown", [], "cannot be opened")]
    shown = info.Info(
        version="1.2.3",
        transports=[
            info.Transport("shm", True, ""),
            info.Transport("verbs", False, "no RDMA device [see ibv_devices]"),
        ],
        rdma=DeviceList("pyverbs", devices),
        memlock_soft=8 << 20,
        memlock_hard=None,
        huge_pages=[info.HugePages(2 << 20, 64, 60)],
        cpus=2,
    )
    output = io.StringIO()
    info.render(shown, Console(file=output, width=140, markup=False))
    text = output.getvalue()
    for expected in (
        "1.2.3",
        "no RDMA device [see ibv_devices]",
        "1: ::ffff:10.9.0.1 (RoCE v2)",
        "cannot be opened",
        "8 MiB",
        "unlimited",
        "Huge pages of 2 MiB",
        "64, 60 of them free",
    ):
        assert expected in text


def test_json_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    transports = {transport["name"]: transport for transport in shown["transports"]}
    assert transports["shm"] == {"name": "shm", "available": True, "reason": ""}
    for transport in transports.values():
        assert transport["available"] != bool(transport["reason"])
    assert shown["cpus"] == len(os.sched_getaffinity(0))
    assert shown["rdma"]["source"] in {"pyverbs", "sysfs"}


def test_table_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info"]) == 0
    output = capsys.readouterr().out
    assert "shm" in output
    assert "Memory that may be locked" in output


@pytest.mark.verbs
def test_the_device_under_test_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    devices = {device["name"]: device for device in shown["rdma"]["devices"]}
    device = devices[os.environ["TF_RDMABATCH_DEVICE"]]
    assert device["protocol"] in {"RoCE", "iWARP", "InfiniBand"}
    assert device["ports"][0]["state"] == "ACTIVE"
    assert device["ports"][0]["gids"]
    transports = {transport["name"]: transport for transport in shown["transports"]}
    assert transports["verbs"]["available"], transports["verbs"]["reason"]


@pytest.mark.verbs
def test_pyverbs_and_sysfs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyverbs")
    through_pyverbs = list_devices()
    assert through_pyverbs.source == "pyverbs", through_pyverbs.note
    monkeypatch.setitem(sys.modules, "pyverbs", None)
    assert list_devices().devices == through_pyverbs.devices
