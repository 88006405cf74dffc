"""Free ports of this machine."""

import socket

_holders: list[socket.socket] = []


def free_port() -> int:
    """Port that no other program is given while this process lives.

    JAX's service shares ports (SO_REUSEPORT), so it can listen there.
    """
    holder = socket.socket()
    _holders.append(holder)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1]
