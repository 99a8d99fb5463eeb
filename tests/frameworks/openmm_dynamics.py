# packages: openmm[cuda12] numpy
"""OpenMM: energies and forces of charged, bonded particles, and some steps of dynamics, against its reference platform."""

import numpy as np
import openmm as mm
from check import close, finish, part

COUNT, LENGTH = 64, 2.0


def system():
    """Particles on a grid, in pairs, with the forces between them."""
    result = mm.System()
    result.setDefaultPeriodicBoxVectors([LENGTH, 0, 0], [0, LENGTH, 0], [0, 0, LENGTH])
    between, bonds = mm.NonbondedForce(), mm.HarmonicBondForce()
    between.setNonbondedMethod(mm.NonbondedForce.CutoffPeriodic)
    between.setCutoffDistance(0.9)
    for i in range(COUNT):
        result.addParticle(40.0)
        between.addParticle((-1) ** i * 0.2, 0.3, 0.5)
    for i in range(0, COUNT, 2):
        bonds.addBond(i, i + 1, 0.5, 1000.0)
        between.addException(i, i + 1, 0, 1, 0)
    result.addForce(between)
    result.addForce(bonds)
    return result


def run(platform):
    """The energy and the forces at the start, and the energy and the places after a hundred steps."""
    rng = np.random.default_rng(1)
    grid = np.array([[i % 4, i // 4 % 4, i // 16] for i in range(COUNT)]) * 0.5
    steps = mm.VerletIntegrator(0.001)
    context = mm.Context(system(), steps, mm.Platform.getPlatformByName(platform))
    context.setPositions(grid + rng.normal(scale=0.02, size=grid.shape))
    start = context.getState(getEnergy=True, getForces=True)
    steps.step(100)
    end = context.getState(getEnergy=True, getPositions=True)
    return (
        [start.getPotentialEnergy()._value, end.getPotentialEnergy()._value],
        start.getForces(asNumpy=True)._value,
        end.getPositions(asNumpy=True)._value,
    )


@part
def dynamics():
    energies, forces, places = run("CUDA")
    expected = run("Reference")
    close(energies, expected[0], 1e-5)
    close(forces, expected[1], 1e-5)
    close(places, expected[2], 1e-4)


finish()
