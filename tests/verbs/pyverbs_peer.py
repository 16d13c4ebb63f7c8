"""A peer of the verbs transport that is written with pyverbs alone.

It speaks the wire format from its documentation (offers, memory descriptors, connection requests,
announcements), so that the transport is not only checked against itself.

    python pyverbs_peer.py BUILD/tests/transport_peer SCENARIO

plays a scenario with a transport_peer that it starts, and prints `passed`. Runs with any
interpreter that has pyverbs, and takes nothing else from this project.
"""

from __future__ import annotations

import ipaddress
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from pyverbs import cm_enums, enums
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

PATIENCE = 60.0  # seconds
ROCE, IWARP = 1, 2
RECEIVES = 16
ACCESS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE


@dataclass(frozen=True)
class Offer:
    """Where the other side listens, and the cookie that it wants to see."""

    fabric: int
    ip: str
    port: int
    cookie: bytes

    @staticmethod
    def parse(data: bytes) -> Offer:
        magic, version, fabric, family, _, port, address, cookie = struct.unpack(
            "<2sBBBBH16s16s", data
        )
        assert (magic, version) == (b"RV", 1)
        size = {4: 4, 6: 16}[family]
        return Offer(fabric, str(ipaddress.ip_address(address[:size])), port, cookie)


@dataclass(frozen=True)
class Descriptor:
    """Memory that the other side lets us reach."""

    key: int
    address: int
    length: int

    @staticmethod
    def parse(data: bytes) -> Descriptor:
        magic, version, zero, key, address, length = struct.unpack("<2sBBIQQ", data)
        assert (magic, version, zero) == (b"RM", 1, 0)
        return Descriptor(key, address, length)

    def encode(self) -> bytes:
        return struct.pack("<2sBBIQQ", b"RM", 1, 0, self.key, self.address, self.length)


def pattern(length: int, seed: int) -> bytes:
    """Return the bytes that transport_peer writes and expects."""
    return bytes((seed + i) % 251 for i in range(length))


class CmError(Exception):
    """rdma_cm reported another event than the one that was waited for."""

    def __init__(self, event: int, text: str) -> None:
        super().__init__(f"rdma_cm says {text}")
        self.event = event


class Peer:
    """The connecting side, with 64 KiB that the other side may write."""

    def __init__(self, offer: Offer, arena_bytes: int = 64 * 1024) -> None:
        self.fabric = offer.fabric
        self._channel = CMEventChannel()
        self._id = CMID(creator=self._channel, port_space=cm_enums.RDMA_PS_TCP)
        address = AddrInfo(
            dst=offer.ip, dst_service=str(offer.port), port_space=cm_enums.RDMA_PS_TCP
        )
        self._id.resolve_addr(address)
        self._expect(cm_enums.RDMA_CM_EVENT_ADDR_RESOLVED)
        self._id.resolve_route()
        self._expect(cm_enums.RDMA_CM_EVENT_ROUTE_RESOLVED)
        context = self._id.context
        self._send_cq = CQ(context, 64)
        self._receive_cq = CQ(context, 64)
        init = QPInitAttr(
            qp_type=enums.IBV_QPT_RC,
            scq=self._send_cq,
            rcq=self._receive_cq,
            cap=QPCap(max_send_wr=16, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1),
        )
        self._qp = QP(self._id.pd, init)
        attributes, mask = self._id.init_qp_attr(enums.IBV_QPS_INIT)
        self._qp.modify(attributes, mask)
        self._arena = MR(self._id.pd, arena_bytes, ACCESS)
        self._staging = MR(self._id.pd, arena_bytes, ACCESS)
        self._words = MR(self._id.pd, 4 * RECEIVES, enums.IBV_ACCESS_LOCAL_WRITE)
        for index in range(RECEIVES):
            self._post_receive(index)
        self._connect(offer.cookie)

    @property
    def memory(self) -> Descriptor:
        return Descriptor(self._arena.rkey, self._arena.buf, self._arena.length)

    def read_arena(self, length: int, offset: int = 0) -> bytes:
        data: bytes = self._arena.read(length, offset)
        return data

    def receive(self) -> int:
        """Wait for an announcement and return its immediate."""
        completion = self._wait(self._receive_cq)
        index = completion.wr_id
        if self.fabric == IWARP:
            assert completion.byte_len == 4
            word = self._words.read(4, 4 * index)
        else:
            assert completion.opcode == enums.IBV_WC_RECV_RDMA_WITH_IMM
            # As the device left it: network order in memory.
            word = struct.pack("=I", completion.imm_data)
        self._post_receive(index)
        immediate: int = struct.unpack(">I", word)[0]
        return immediate

    def write(self, target: Descriptor, data: bytes, immediate: int) -> None:
        """Write `data` to the start of `target` and announce it with `immediate`."""
        self._staging.write(data, len(data))
        sge = SGE(self._staging.buf, len(data), self._staging.lkey)
        in_network_order: int = struct.unpack("=I", struct.pack(">I", immediate))[0]
        if self.fabric == IWARP:
            self._post(enums.IBV_WR_RDMA_WRITE, sge, target)
            word_at = self._staging.length - 4
            self._staging.write(struct.pack(">I", immediate), 4, word_at)
            sge = SGE(self._staging.buf + word_at, 4, self._staging.lkey)
            self._post(enums.IBV_WR_SEND, sge)
            self._wait(self._send_cq)
        else:
            self._post(enums.IBV_WR_RDMA_WRITE_WITH_IMM, sge, target, in_network_order)
        self._wait(self._send_cq)

    def send_garbage(self) -> None:
        """Send a message that is no announcement."""
        self._post(enums.IBV_WR_SEND, SGE(self._staging.buf, 3, self._staging.lkey))

    def close(self) -> None:
        self._id.disconnect()
        self._qp.close()

    def _connect(self, cookie: bytes) -> None:
        request = struct.pack("<2sBB16s", b"RC", 1, 0, cookie)
        parameters = ConnParam(
            resources=1,
            depth=1,
            retry=6,
            rnr_retry=7,
            qp_num=self._qp.qp_num,
            data_len=len(request),
        )
        parameters.set_private_data(request)
        self._id.connect(parameters)
        if self.fabric == IWARP:
            self._expect(cm_enums.RDMA_CM_EVENT_ESTABLISHED)
            return
        self._expect(cm_enums.RDMA_CM_EVENT_CONNECT_RESPONSE)
        # INIT once more: what the other side may do here is known only now.
        for state in (enums.IBV_QPS_INIT, enums.IBV_QPS_RTR, enums.IBV_QPS_RTS):
            attributes, mask = self._id.init_qp_attr(state)
            self._qp.modify(attributes, mask)
        self._id.establish()

    def _expect(self, wanted: int) -> None:
        event = CMEvent(self._channel)
        got, text = event.event_type, event.event_str()
        event.ack_cm_event()
        if got != wanted:
            raise CmError(got, text)

    def _post_receive(self, index: int) -> None:
        sge = SGE(self._words.buf + 4 * index, 4, self._words.lkey)
        self._qp.post_recv(RecvWR(wr_id=index, sg=[sge], num_sge=1))

    def _post(
        self, opcode: int, sge: Any, target: Descriptor | None = None, immediate: int = 0
    ) -> None:
        request = SendWR(
            num_sge=1,
            sg=[sge],
            opcode=opcode,
            send_flags=enums.IBV_SEND_SIGNALED,
            imm_data=immediate,
        )
        if target is not None:
            request.set_wr_rdma(target.key, target.address)
        self._qp.post_send(request)

    @staticmethod
    def _wait(queue: Any) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            count, completions = queue.poll(1)
            if count == 1:
                completion = completions[0]
                assert completion.status == enums.IBV_WC_SUCCESS, f"status {completion.status}"
                return completion
            time.sleep(0)
        raise TimeoutError("no completion in time")


class Tool:
    """The transport's side: the program transport_peer, asked and answering in lines."""

    def __init__(self, path: str) -> None:
        # Any address: the transport chooses one of its device.
        self._process = subprocess.Popen(
            [path, "verbs", "127.0.0.1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.offer = Offer.parse(bytes.fromhex(self.read("offer")))

    def read(self, key: str) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        word, _, rest = answer.partition(" ")
        assert word == key, f"transport_peer said '{answer}', not '{key}'"
        return rest

    def memory(self) -> Descriptor:
        return Descriptor.parse(bytes.fromhex(self.read("memory")))

    def say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0


def exchange(tool: Tool) -> None:
    """Bytes and immediates arrive unchanged, in both directions."""
    peer = Peer(tool.offer)
    theirs = tool.memory()
    tool.say("memory " + peer.memory.encode().hex())
    tool.read("ok")
    # More messages than receives, so that they have to be given back.
    for turn in range(3 * RECEIVES):
        immediate = 0x80000001 + turn
        tool.say(f"write {1000 * turn} {turn} {immediate}")
        assert peer.receive() == immediate
        tool.read("sent")
        assert peer.read_arena(1000 * turn) == pattern(1000 * turn, turn)
        if turn > 0:
            assert peer.read_arena(8, peer.memory.length - 8) == pattern(8, turn)

        peer.write(theirs, pattern(700, turn + 7), 0xFFFFFFFF - turn)
        tool.say(f"expect 700 {turn + 7}")
        assert tool.read("arrival") == f"{0xFFFFFFFF - turn} ok"
    peer.close()
    tool.say("broken")
    tool.read("broken")


def wrong_cookie(tool: Tool) -> None:
    """A peer without the cookie is rejected, and the next one with it is served."""
    try:
        Peer(replace(tool.offer, cookie=bytes(16)))
    except CmError as error:
        if error.event != cm_enums.RDMA_CM_EVENT_REJECTED:
            raise
    else:
        raise AssertionError("connected with a wrong cookie")
    peer = Peer(tool.offer)
    tool.memory()
    peer.close()


def garbage(tool: Tool) -> None:
    """A message that is no announcement costs the peer its connection, not the process its life."""
    peer = Peer(tool.offer)
    tool.memory()
    peer.send_garbage()
    tool.say("expect 0 0")
    tool.read("the")  # "the peer sent something other than an immediate"
    tool.say("broken")
    tool.read("broken")
    peer.close()


SCENARIOS = {scenario.__name__: scenario for scenario in (exchange, wrong_cookie, garbage)}


def main() -> None:
    _, path, scenario = sys.argv
    tool = Tool(path)
    SCENARIOS[scenario](tool)
    tool.close()
    print("passed")


if __name__ == "__main__":
    main()
