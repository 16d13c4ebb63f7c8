"""What is measured: a case is one row of the result, and is laid out over tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PATTERNS = (
    "one-to-one",
    "many-to-one",
    "one-to-many",
    "ring",
    "push",
    "pull",
    "push-pull",
    "memcpy",
    "idle",
)
STORE_PATTERNS = frozenset({"push", "pull", "push-pull"})
# Those whose rows differ by the number of peers.
PEER_PATTERNS = frozenset({"many-to-one", "one-to-many", "ring"})

# Processes that play many peers: more would measure this machine's scheduler.
MAX_PEER_PROCESSES = 8
MIN_SLOT_BYTES = 4096
# Small messages share slots of this size, while the slots of all peers stay within the caches.
SMALL_SLOT_BYTES = 16 * 1024
CACHED_SLOTS_BYTES = 16 << 20
MAX_SLOT_BYTES = 256 * 1024 + 64
STORE_SLOT_BYTES = 256 * 1024 + 256
# What the slots of all peers of a server take, in one direction.
MAX_SLOTS_BYTES = 64 << 20
SLOT_OVERHEAD = 32
TOKEN = "benchmark"
ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Tuning:
    """What a user may set of the engine; None stands for a choice by the size of the messages."""

    slots: int = 64
    slot_bytes: int | None = None
    queue_pairs: int = 1
    window: int = 0


@dataclass(frozen=True)
class Case:
    """A row. `bytes` is that of a message, or of all parameters together."""

    transport: str
    pattern: str
    confirm: str
    bytes: int
    peers: int = 1
    servers: int = 1
    parameters: int = 1
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def operation_bytes(self) -> int:
        """What one counted operation moves: a message, a copy, a push or pull of a parameter."""
        if self.pattern in STORE_PATTERNS:
            return self.bytes // self.parameters // ELEMENT_BYTES * ELEMENT_BYTES
        return self.bytes

    @property
    def is_messages(self) -> bool:
        """Whether messages are sent, rather than parameters or nothing."""
        return self.pattern in PEER_PATTERNS or self.pattern == "one-to-one"

    @property
    def slot_bytes(self) -> int:
        """As large as a message, within limits: small ones share a slot, large ones are cut."""
        if self.tuning.slot_bytes is not None:
            return self.tuning.slot_bytes
        if self.pattern in STORE_PATTERNS:
            return STORE_SLOT_BYTES
        wanted = -(-(self.bytes + SLOT_OVERHEAD) // 64) * 64
        all_slots = self.peers * self.tuning.slots
        most = MAX_SLOTS_BYTES // all_slots // 64 * 64
        shared = min(SMALL_SLOT_BYTES, CACHED_SLOTS_BYTES // all_slots // 64 * 64)
        return max(MIN_SLOT_BYTES, shared, min(wanted, MAX_SLOT_BYTES, most))


@dataclass(frozen=True)
class TaskPlan:
    """One process: its options, whether it listens, and whom it connects to (indices of tasks)."""

    options: dict[str, Any]
    listens: bool = False
    connects_to: tuple[int, ...] = ()
    connections: int = 1
    awaits: int = 0


def plan(case: Case) -> list[TaskPlan]:
    """Lay a case out over tasks; those that listen come first."""
    if case.pattern == "memcpy":
        return [TaskPlan({"role": "copy", "bytes": case.bytes, "token": TOKEN})]
    if case.pattern in STORE_PATTERNS:
        return _store_plan(case)
    if case.pattern == "ring":
        return _ring_plan(case)
    server_sends = "accepted" if case.pattern == "one-to-many" else "nobody"
    client_sends = "connected" if case.pattern in {"one-to-one", "many-to-one"} else "nobody"
    server = TaskPlan(
        _options(case, "server", role="messages", sends=server_sends, bytes=case.bytes),
        listens=True,
        awaits=case.peers,
    )
    processes = min(case.peers, MAX_PEER_PROCESSES)
    clients = []
    for i in range(processes):
        connections = case.peers // processes + (i < case.peers % processes)
        options = _options(case, f"peer:{i}", role="messages", sends=client_sends, bytes=case.bytes)
        clients.append(TaskPlan(options, connects_to=(0,), connections=connections))
    return [server, *clients]


def _ring_plan(case: Case) -> list[TaskPlan]:
    return [
        TaskPlan(
            _options(case, f"peer:{i}", role="messages", sends="connected", bytes=case.bytes),
            listens=True,
            connects_to=((i + 1) % case.peers,),
            awaits=2,
        )
        for i in range(case.peers)
    ]


def _store_plan(case: Case) -> list[TaskPlan]:
    common: dict[str, Any] = {
        "bytes": case.operation_bytes * case.parameters,
        "parameters": case.parameters,
        "servers": case.servers,
        "pushes": case.pattern != "pull",
        "pulls": case.pattern != "push",
        "contributors": case.peers,
    }
    servers = [
        TaskPlan(
            _options(case, f"server:{i}", role="server", index=i, **common),
            listens=True,
            awaits=case.peers,
        )
        for i in range(case.servers)
    ]
    workers = [
        TaskPlan(
            _options(case, f"worker:{i}", role="worker", index=i, **common),
            connects_to=tuple(range(case.servers)),
        )
        for i in range(case.peers)
    ]
    return [*servers, *workers]


def _options(case: Case, name: str, **options: Any) -> dict[str, Any]:
    return {
        "name": name,
        "token": TOKEN,
        "transport": case.transport,
        "confirm": case.confirm,
        "slots": case.tuning.slots,
        "slot_bytes": case.slot_bytes,
        "queue_pairs": case.tuning.queue_pairs,
        "window": case.tuning.window,
        **options,
    }
