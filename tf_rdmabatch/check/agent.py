"""The part of every task: it listens, and does what the leading task asks for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tf_rdmabatch.check import facts
from tf_rdmabatch.check.calls import CallError, answer, answer_with_region, call_for_region
from tf_rdmabatch.check.cluster import Task
from tf_rdmabatch.check.measure import REGION_BYTES, measure
from tf_rdmabatch.check.reach import ReachError, reach
from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.engine import Cancelled, Connection, Engine, EngineError, Message, RegisteredArray

# Connections that one task tries at a time.
_AT_ONCE = 32


class Agent:
    """A task that can be called; a context manager.

    Parameters
    ----------
    task
        Whose name it has, and at whose address it listens.
    token
        The job's; None is the environment's.
    transport, ports
        As of `Engine`.

    Raises
    ------
    CommandError
        It cannot listen there.
    """

    def __init__(self, task: Task, token: str | None, transport: str, ports: str) -> None:
        self._task, self._token = task, token
        self._transport, self._ports = transport, ports
        self._memory: RegisteredArray | None = None
        self._lock = threading.Lock()
        self._lead: Connection | None = None
        self._done = threading.Event()
        self._engine = self._make_engine()
        try:
            self.listens = self._engine.listen(task.address)
        except EngineError as error:
            self._engine.close()
            raise CommandError(
                f"{task.name} cannot listen: {error}. Is {task.address} an address of this host, "
                "and does a job use the port already?"
            ) from error
        threading.Thread(target=self._serve, name="check-agent", daemon=True).start()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def wait(self, timeout: float) -> bool:
        """Return when the leading task is done with this one, or is lost; false if none came.

        Parameters
        ----------
        timeout
            Seconds for it to come.
        """
        deadline = time.monotonic() + timeout
        while self._lead is None and time.monotonic() < deadline:
            if self._done.wait(0.05):
                break
        while self._lead is not None and not self._lead.closed:
            if self._done.wait(0.05):
                break
        return self._lead is not None

    def _make_engine(self) -> Engine:
        try:
            return Engine(
                self._token, self._task.name, transport=self._transport, ports=self._ports
            )
        except EngineError as error:
            raise CommandError(str(error), status=2) from error

    def _serve(self) -> None:
        try:
            for message in self._engine:
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        except Cancelled:
            return

    def _answer(self, message: Message) -> None:
        connection = message.connection
        try:
            arguments = json.loads(message.data)
            name = arguments.pop("call")
            if name == "region":
                answer_with_region(connection, connection.export(self._region()), 30)
                return
            answer(connection, 30, result=self._do(name, connection, arguments))
        except EngineError as error:
            self._refuse(connection, str(error))
        except Exception as error:
            self._refuse(connection, repr(error))

    def _refuse(self, connection: Connection, error: str) -> None:
        try:
            answer(connection, 5, error=error)
        except EngineError:
            connection.close()

    def _do(self, name: str, connection: Connection, arguments: dict[str, Any]) -> Any:
        if name == "facts":
            self._lead = connection
            return facts.collect(self.listens)
        if name == "reach":
            return self._reach(**arguments)
        if name == "measure":
            return self._measure(**arguments)
        if name == "end":
            self._done.set()
            return None
        raise CallError(f"no such call: {name}")

    def _region(self) -> RegisteredArray:
        with self._lock:
            if self._memory is None:
                self._memory = self._engine.allocate(REGION_BYTES, "uint8", access="write")
            return self._memory

    def _reach(self, addresses: Sequence[str], timeout: float) -> list[dict[str, Any]]:
        """Return for each address what connects this task with it, or why nothing does."""
        # An engine of its own, so that messages of these connections are nobody else's.
        with self._make_engine() as engine, ThreadPoolExecutor(_AT_ONCE) as pool:

            def one(address: str) -> dict[str, Any]:
                try:
                    with reach(engine, address, timeout) as connection:
                        return {"transport": connection.transport, "choice": connection.choice}
                except ReachError as error:
                    return {"kind": error.kind, "detail": error.detail}

            return list(pool.map(one, addresses))

    def _measure(self, address: str, seconds: float, timeout: float) -> dict[str, Any]:
        with self._make_engine() as engine:
            try:
                with reach(engine, address, timeout) as connection:
                    region = call_for_region(connection, timeout)
                    speed = measure(engine, connection, region, seconds, timeout)
            except ReachError as error:
                return {"kind": error.kind, "detail": error.detail}
            except (EngineError, CallError) as error:
                return {"kind": "lost", "detail": str(error)}
        return {"latency_us": speed.latency_us, "gb_per_s": speed.gb_per_s}
