"""What the programs of several processes share: this one starts itself once for each rank."""

import os
import socket
import subprocess
import sys


def each(count):
    """Yields this process's rank; the process that has none starts those that have one, and ends with them."""
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    said = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count), "NCCL_SOCKET_IFNAME": "lo"}
    # The first says how the parts went; the others' status says whether they agree.
    processes = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, **said, "RANK": str(rank)},
            stdout=None if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(count)
    ]
    sys.exit(max(process.wait() != 0 for process in processes))
