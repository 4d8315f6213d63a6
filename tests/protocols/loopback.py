"""What programs on this machine send each other over TCP, byte for byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections import defaultdict
from types import TracebackType

# Where an Ethernet frame has the kind of what it carries, and where that begins.
_KIND, _BEGIN = slice(12, 14), 14
_IPV4, _TCP = b"\x08\x00", 6
_ALL_KINDS = 3


class Loopback:
    """Listens on the loopback interface while it is in use; Linux alone, with the right to open raw sockets.

    Raises:
        PermissionError: raw sockets may not be opened.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(_ALL_KINDS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._ended = threading.Event()
        self._parts: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
        self._listener = threading.Thread(target=self._listen)

    def __enter__(self) -> Loopback:
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._listener.join()
        self._socket.close()

    @property
    def streams(self) -> list[bytes]:
        """What was sent from one port to another, each in the order of its bytes."""
        return [b"".join(parts[at] for at in sorted(parts)) for parts in self._parts.values()]

    def _listen(self) -> None:
        while not self._ended.is_set():
            try:
                frame = self._socket.recv(1 << 17)
            except TimeoutError:
                continue
            if frame[_KIND] == _IPV4 and frame[_BEGIN + 9] == _TCP:
                self._take(frame[_BEGIN:])

    def _take(self, packet: bytes) -> None:
        segment = packet[4 * (packet[0] & 15) : int.from_bytes(packet[2:4], "big")]
        source, destination, place = struct.unpack("!HHI", segment[:8])
        # A frame is seen twice: as it leaves and as it comes.
        if payload := segment[4 * (segment[12] >> 4) :]:
            self._parts[source, destination].setdefault(place, payload)
