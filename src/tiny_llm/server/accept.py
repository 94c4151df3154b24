"""Accepts connections, no more than the process has descriptors for.

asyncio accepts as many at once as may wait, and if descriptors run out, it logs a traceback for each of them.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)
MOST_DESCRIPTORS = 2**16  # some systems have no limit, or one that is too large to be set
RESERVED = 128  # descriptors that are no connections: models, logs, processes, the event loop
PAUSE = 1.0  # seconds, while there is no descriptor
LOG_SECONDS = 60.0


def raise_descriptor_limit() -> None:
    """As far as this process may."""
    try:
        import resource
    except ImportError:  # not every system has it
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections_within(most: int) -> int:
    """How many of this number of connections the limit of descriptors allows, at least one."""
    try:
        import resource
    except ImportError:
        return most
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft - RESERVED >= most:
        return most
    allowed = max(soft - RESERVED, 1)
    LOG.warning("the limit of open files, %d, allows %d connections instead of %d", soft, allowed, most)
    return allowed


async def accept(listener: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
    """Accept one connection after another, until cancelled."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    logged_at = -LOG_SECONDS
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(new_protocol, connection)
        except ConnectionError:  # the client has gone
            continue
        except OSError as error:
            if time.monotonic() >= logged_at + LOG_SECONDS:
                logged_at = time.monotonic()
                LOG.warning("no connection can be accepted: %s", error.strerror)
            await asyncio.sleep(PAUSE)
