# packages: cupy-cuda12x[ctk] numpy
"""CuPy's distributed communicators over NCCL: two processes with a device each, which this one starts."""

import os

from ranks import each

RANKS = 2
rank = each(RANKS)

import cupy
import cupyx.distributed
import numpy as np

from check import close, finish, part

numbers = np.arange(1000, dtype="f")
on = lambda array: cupy.asarray(np.ascontiguousarray(array))
room = lambda *shape: on(np.zeros(shape, "f"))

comm = cupyx.distributed.init_process_group(RANKS, rank, host="127.0.0.1", port=int(os.environ["MASTER_PORT"]))


@part
def reductions():
    total = room(1000)
    comm.all_reduce(on(numbers * (rank + 1)), total)
    close(total.get(), numbers * 3, 0)
    comm.all_reduce(on(numbers * (rank + 1)), total, "max")
    close(total.get(), numbers * 2, 0)
    mine = room(500)
    comm.reduce_scatter(on(numbers), mine, 500)
    close(mine.get(), 2 * numbers.reshape(RANKS, -1)[rank], 0)


@part
def movements():
    everybodys = room(RANKS, 1000)
    comm.all_gather(on(numbers + rank), everybodys, 1000)
    close(everybodys.get(), np.stack([numbers, numbers + 1]), 0)
    x = on(numbers + rank)
    comm.broadcast(x, 1)
    close(x.get(), numbers + 1, 0)
    turned = room(RANKS, 500)
    comm.all_to_all(on((numbers + rank).reshape(RANKS, -1)), turned)
    close(turned.get(), np.stack([(numbers + of).reshape(RANKS, -1)[rank] for of in range(RANKS)]), 0)


@part
def messages():
    x = on(numbers + rank)
    comm.send(x, 1) if rank == 0 else comm.recv(x, 0)
    close(x.get(), numbers, 0)
    comm.barrier()


comm.stop()
finish()
