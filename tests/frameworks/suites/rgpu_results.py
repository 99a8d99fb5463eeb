"""A plugin of pytest that notes what came of each test in a file, one line of JSON at a time.

A line is written when a test starts and when it has ended, so that nothing is lost where the process hangs or dies, and
who started it knows which test that was. Tests that have a line already are left out: the process is started
again for the others.
"""

import json
import os
import zlib

import pytest

_path = os.environ["RGPU_SUITE_RESULTS"]
_one_in = int(os.environ.get("RGPU_SUITE_ONE_IN", "1"))
_outcomes = {}


def _note(test, outcome, why=""):
    with open(_path, "a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "why": " ".join(why.split())[:300]}) + "\n")


def _why(report):
    """The message of what went wrong, or why a test was skipped."""
    text = report.longrepr
    if isinstance(text, tuple):
        return str(text[2])
    crash = getattr(text, "reprcrash", None)
    return crash.message if crash else str(text).strip().rpartition("\n")[2]


def pytest_collection_modifyitems(config, items):
    """Leaves out what has been started before, and what the sample does not have."""
    seen = set()
    if os.path.exists(_path):
        with open(_path) as file:
            seen = {json.loads(line)["test"] for line in file}
    left_out, kept = [], []
    for item in items:
        wanted = item.nodeid not in seen and zlib.crc32(item.nodeid.encode()) % _one_in == 0
        (kept if wanted else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_collectreport(report):
    """A file that cannot be read is one failed test, or one that was skipped."""
    if report.failed or (report.skipped and report.nodeid.endswith(".py")):
        _note(report.nodeid, report.outcome, _why(report))


def pytest_runtest_logstart(nodeid):
    """The next test."""
    _outcomes[nodeid] = ("passed", "")
    _note(nodeid, "started")


def pytest_runtest_logreport(report):
    """One of a test's phases. What the suite itself expects to fail, and does, has passed."""
    if report.failed:
        _outcomes[report.nodeid] = ("failed", _why(report))
    elif report.skipped and not hasattr(report, "wasxfail"):
        _outcomes[report.nodeid] = ("skipped", _why(report))


def pytest_runtest_logfinish(nodeid):
    """The end of a test."""
    _note(nodeid, *_outcomes.pop(nodeid))


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """numba-cuda's test cases ask for this; their `conftest.py`, which has it, is not in the package."""
    request.cls._dump_failed_filechecks = False
