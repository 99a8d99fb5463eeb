"""Solves a DIMACS minimum-cost-flow problem with OR-tools' SimpleMinCostFlow, three times; prints the best times.

Argument: FILE
"""

import sys
import time

import numpy
from ortools.graph.python import min_cost_flow


def read(name):
    supplies, arcs = {}, []
    with open(name, encoding="ascii") as file:
        for line in file:
            if line.startswith("p "):
                nodes = int(line.split()[2])
            elif line.startswith("n "):
                _, node, supply = line.split()
                supplies[int(node) - 1] = int(supply)
            elif line.startswith("a "):
                arcs.append([int(word) for word in line.split()[1:]])
    return nodes, supplies, numpy.array(arcs, dtype=numpy.int64).reshape(-1, 5)


def main():
    nodes, supplies, arcs = read(sys.argv[1])
    if (arcs[:, 2] != 0).any():
        sys.exit("lower bounds are not supported")
    tails = (arcs[:, 0] - 1).astype(numpy.int32)
    heads = (arcs[:, 1] - 1).astype(numpy.int32)
    total = sum(supply for supply in supplies.values() if supply > 0)
    # No flow is larger than all supplies together, as long as costs are not negative.
    if (arcs[:, 4] < 0).any() and (arcs[:, 3] < 0).any():
        sys.exit("unlimited capacities with negative costs are not supported")
    capacities = numpy.where(arcs[:, 3] < 0, total, arcs[:, 3])
    costs = arcs[:, 4].copy()
    node_indices = numpy.array(list(supplies.keys()), dtype=numpy.int32)
    node_supplies = numpy.array(list(supplies.values()), dtype=numpy.int64)
    best_solve = best_all = float("inf")
    for _ in range(3):
        start = time.process_time()
        solver = min_cost_flow.SimpleMinCostFlow()
        solver.add_arcs_with_capacity_and_unit_cost(tails, heads, capacities, costs)
        solver.set_nodes_supplies(node_indices, node_supplies)
        built = time.process_time()
        status = solver.solve()
        end = time.process_time()
        if status != solver.OPTIMAL:
            print(status.name.lower() if hasattr(status, "name") else status)
            return
        best_solve = min(best_solve, end - built)
        best_all = min(best_all, end - start)
    print(f"optimum: {solver.optimal_cost()}")
    print(f"time: {best_solve * 1e3:.3f} ms")
    print(f"time with building: {best_all * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
