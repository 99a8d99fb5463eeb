# packages: torch triton numpy
"""torch.distributed over NCCL: two processes with a device each, which this one starts."""

from ranks import each

RANKS = 2
rank = each(RANKS)

import numpy as np
import torch
import torch.distributed as dist

from check import close, finish, part

random = np.random.default_rng(5)
values = random.standard_normal((RANKS, 3000)).astype("f")
on = lambda array: torch.from_numpy(np.ascontiguousarray(array)).to("cuda")

dist.init_process_group("nccl")


@part
def all_reduce():
    for operator, expected in [
        (dist.ReduceOp.SUM, values.sum(axis=0)),
        (dist.ReduceOp.MAX, values.max(axis=0)),
        (dist.ReduceOp.AVG, values.mean(axis=0)),
        (dist.ReduceOp.PRODUCT, values.prod(axis=0)),
    ]:
        x = on(values[rank])
        dist.all_reduce(x, operator)
        close(x.cpu(), expected, 1e-6)
    x = on(values[rank]).to("cpu").to(torch.bfloat16).to("cuda")
    dist.all_reduce(x)
    close(x.cpu().float(), values.sum(axis=0), 2e-2)


@part
def broadcast():
    x = on(values[rank])
    dist.broadcast(x, src=1)
    close(x.cpu(), values[1], 0)


@part
def all_gather():
    parts = [on(np.zeros(3000, "f")) for _ in range(RANKS)]
    dist.all_gather(parts, on(values[rank]))
    for got, expected in zip(parts, values):
        close(got.cpu(), expected, 0)
    whole = on(np.zeros(RANKS * 3000, "f"))
    dist.all_gather_into_tensor(whole, on(values[rank]))
    close(whole.cpu(), values.reshape(-1), 0)


@part
def reduce_scatter():
    x = on(np.zeros(1500, "f"))
    dist.reduce_scatter_tensor(x, on(values[rank]))
    close(x.cpu(), values.sum(axis=0).reshape(RANKS, -1)[rank], 1e-6)


@part
def all_to_all():
    x = on(np.zeros(3000, "f"))
    dist.all_to_all_single(x, on(values[rank]))
    close(x.cpu(), values.reshape(RANKS, RANKS, -1)[:, rank].reshape(-1), 0)


@part
def gather_and_scatter():
    parts = [on(np.zeros(3000, "f")) for _ in range(RANKS)] if rank == 0 else None
    dist.gather(on(values[rank]), parts, dst=0)
    for got, expected in zip(parts or [], values):
        close(got.cpu(), expected, 0)
    x = on(np.zeros(3000, "f"))
    dist.scatter(x, [on(2 * row) for row in values] if rank == 0 else None, src=0)
    close(x.cpu(), 2 * values[rank], 0)
    dist.barrier()


@part
def messages_both_ways():
    x = on(np.zeros(3000, "f"))
    both = [dist.P2POp(dist.isend, on(values[rank]), 1 - rank), dist.P2POp(dist.irecv, x, 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    close(x.cpu(), values[1 - rank], 0)


@part
def send_and_recv():
    x = on(values[0]) if rank == 0 else on(np.zeros(3000, "f"))
    dist.send(x, dst=1) if rank == 0 else dist.recv(x, src=0)
    close(x.cpu(), values[0], 0)


@part
def asynchronous():
    tensors = [on(values[rank] * i) for i in range(5)]
    for work in [dist.all_reduce(x, async_op=True) for x in tensors]:
        work.wait()
    for i, x in enumerate(tensors):
        close(x.cpu(), values.sum(axis=0) * i, 1e-6)


@part
def groups():
    alone = [dist.new_group([i]) for i in range(RANKS)]
    both = dist.new_group(list(range(RANKS)))
    x = on(values[rank])
    dist.all_reduce(x, group=alone[rank])
    close(x.cpu(), values[rank], 0)
    dist.all_reduce(x, group=both)
    close(x.cpu(), values.sum(axis=0), 1e-6)


@part
def gradients():
    """What data-parallel training does, by products alone: each rank has rows of its own, the gradients are averaged."""
    inputs, weights = random.standard_normal((RANKS, 16, 24)).astype("f"), random.standard_normal((24, 8)).astype("f")
    layer = on(weights).requires_grad_()
    (on(inputs[rank]) @ layer).backward(gradient=on(np.ones((16, 8), "f")))
    dist.all_reduce(layer.grad, dist.ReduceOp.AVG)
    close(layer.grad.cpu(), np.einsum("rik->k", inputs)[:, None].repeat(8, 1) / RANKS, 1e-5)


dist.destroy_process_group()
finish()
