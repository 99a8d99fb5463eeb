"""What the programs of this folder share: parts that are run one after the other, each of which is right, wrong or fails."""

import sys
import traceback

import numpy

_bad = 0


def part(function):
    """Runs a part, and says how it went: `NAME: ok`, or `NAME: FAILED` and why, in one line."""
    global _bad
    try:
        function()
        print(f"{function.__name__}: ok", flush=True)
    except Exception as error:  # whatever a framework makes of an error
        _bad += 1
        if "-v" in sys.argv:
            traceback.print_exc()
        text = " ".join(str(error).split())[:200]
        print(f"{function.__name__}: FAILED {type(error).__name__}: {text}", flush=True)
    return function


def close(got, expected, tolerance):
    """Fails where a number differs by more than `tolerance` from what it is to be, relative to the greatest one."""
    got, expected = numpy.asarray(got, dtype=numpy.float64), numpy.asarray(expected, dtype=numpy.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}"
    assert numpy.isfinite(got).all(), "there are numbers that are not finite"
    most = numpy.abs(expected).max() or 1.0
    error = numpy.abs(got - expected).max() / most
    assert error <= tolerance, f"WRONG by {error:.2e} of the greatest number"


def finish():
    """Ends the program, with status 1 where a part was not right."""
    sys.exit(1 if _bad else 0)
