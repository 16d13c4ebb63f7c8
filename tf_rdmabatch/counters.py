"""Counters of an engine: what batching saves, counted where it happens."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Counters:
    """A snapshot of an engine's or a connection's counters.

    Two snapshots subtract: ``engine.counters() - before`` is what happened in between.

    Attributes
    ----------
    doorbells
        Chains of work requests handed to the device, one call each.
    work_requests
        Work requests in those chains.
    send_completions
        Completions of own chains perceived.
    receive_completions
        Arrivals perceived: receive completions, or immediates on shared memory.
    acks
        Acknowledgements written: freed bitmap words, or single ones with ``confirm="each"``.
    messages_sent, messages_received
        Messages handed to the transport, and delivered from it.
    bytes_sent, bytes_received
        Payload bytes of those messages.
    bytes_read, bytes_written
        Bytes of one-sided reads and writes.
    batches_sent
        Announcements: bitmap words written with immediate.
    slots_sent
        Slots filled.
    copies, bytes_copied
        Copies and sums of payload that this process made, and their bytes.
    in_place
        Versions of parameters published in place, without a copy.
    views, bytes_viewed
        Versions of parameters handed out without a copy, and their bytes.
    wakeups_sent, wakeups
        Times that a sleeping peer was woken, and that this engine's progress thread was.
    slot_stalls, queue_stalls
        Sends that found no free slot, and posts that found the send queue full.
    send_calls, receive_calls
        System calls that sent and received (tcp alone).
    refused
        Messages, connections and steps refused.
    """

    doorbells: int = 0
    work_requests: int = 0
    send_completions: int = 0
    receive_completions: int = 0
    acks: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    batches_sent: int = 0
    slots_sent: int = 0
    copies: int = 0
    bytes_copied: int = 0
    in_place: int = 0
    views: int = 0
    bytes_viewed: int = 0
    wakeups_sent: int = 0
    wakeups: int = 0
    slot_stalls: int = 0
    queue_stalls: int = 0
    send_calls: int = 0
    receive_calls: int = 0
    refused: int = 0

    def __add__(self, other: Counters) -> Counters:
        return Counters(**{n: getattr(self, n) + getattr(other, n) for n in _NAMES})

    def __sub__(self, other: Counters) -> Counters:
        return Counters(**{n: getattr(self, n) - getattr(other, n) for n in _NAMES})

    @property
    def messages(self) -> int:
        """Messages in both directions."""
        return self.messages_sent + self.messages_received

    @property
    def doorbells_per_message(self) -> float:
        """Doorbells over messages in both directions; 0 without messages."""
        return self._per_message(self.doorbells)

    @property
    def completions_per_message(self) -> float:
        """Completions of both kinds over messages in both directions; 0 without messages."""
        return self._per_message(self.send_completions + self.receive_completions)

    @property
    def acks_per_message(self) -> float:
        """Acknowledgements over messages in both directions; 0 without messages."""
        return self._per_message(self.acks)

    def _per_message(self, count: int) -> float:
        return count / self.messages if self.messages else 0.0


_NAMES = tuple(field.name for field in fields(Counters))
