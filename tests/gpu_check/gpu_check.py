#!/usr/bin/env python3
"""Compares CUDA programs run natively with the same programs run through rgpu, on this machine's GPU.

Needs nothing but this folder, Python's standard library and, where PyTorch is to be tried, PyTorch. Every step's
outcome is kept in the results folder, so that a run can be ended at any time and continued by the next one; parts
are useful alone. `--list` names them.
"""

import argparse
import datetime
import difflib
import json
import os
import platform
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RGPU = os.path.join(HERE, "bin", "rgpu")
SHIM = os.path.join(HERE, "bin", "librgpu.so")
NATIVE = "native"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# Asks the driver and NVML of whatever machine, or rgpu, this is run with.
PROBE = r"""
import ctypes, json
found = {}
def text(function, *arguments):
    buffer = ctypes.create_string_buffer(96)
    return buffer.value.decode() if function(*arguments[:1], buffer, *(arguments[1:] or (96,))) == 0 else None
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    number = ctypes.c_int(0)
    found["cuInit"] = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(number)); found["cuda"] = number.value
    cuda.cuDeviceGetCount(ctypes.byref(number)); found["devices"] = number.value
    names = []
    for i in range(found["devices"]):
        buffer = ctypes.create_string_buffer(96)
        cuda.cuDeviceGetName(buffer, 96, i)
        names.append(buffer.value.decode())
    found["names"] = names
    total = ctypes.c_size_t(0)
    if names and cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0:
        found["memory"] = total.value
except OSError as e:
    found["cuda_error"] = str(e)
try:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    found["nvmlInit"] = nvml.nvmlInit_v2()
    buffer = ctypes.create_string_buffer(96)
    if nvml.nvmlSystemGetDriverVersion(buffer, 96) == 0:
        found["driver"] = buffer.value.decode()
    device = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0:
        value = ctypes.c_uint(0)
        for name, function in [("pcie_generation", "nvmlDeviceGetMaxPcieLinkGeneration"),
                               ("pcie_lanes", "nvmlDeviceGetMaxPcieLinkWidth")]:
            if getattr(nvml, function)(device, ctypes.byref(value)) == 0:
                found[name] = value.value
except (OSError, AttributeError) as e:
    found["nvml_error"] = str(e)
print(json.dumps(found))
"""

# What PyTorch does first. Each step says for itself whether it worked.
TORCH = r"""
import json, sys, time
size = int(sys.argv[1])
state = {}
def step(name, body):
    begin = time.perf_counter()
    try:
        value, error = body(), None
    except BaseException as e:
        value, error = None, f"{type(e).__name__}: {e}".splitlines()[0][:400]
    print(json.dumps({"step": name, "value": value, "error": error, "seconds": time.perf_counter() - begin}), flush=True)
    if error and name in ("import torch", "torch.cuda.is_available"):
        sys.exit(0)
def import_torch():
    global torch
    import torch
    return f"{torch.__version__}, CUDA {torch.version.cuda}"
def available():
    if not torch.cuda.is_available():
        raise RuntimeError("it is not")
    return True
def close(a, b):
    if not torch.allclose(a, b, rtol=1e-2, atol=1e-2):
        raise AssertionError("the result is wrong")
    return True
def timed(body, count):
    body(); torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count): body()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e6
def training():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 64).cuda(); y = x.sum(dim=1, keepdim=True) / 8
    losses = []
    for _ in range(20):
        optimizer.zero_grad(); loss = ((model(x) - y) ** 2).mean(); loss.backward(); optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0]: raise AssertionError(f"the loss went from {losses[0]} to {losses[-1]}")
    return True
step("import torch", import_torch)
step("torch.cuda.is_available", available)
step("torch.cuda.get_device_name", lambda: torch.cuda.get_device_name(0))
torch.manual_seed(0)
a, b = torch.randn(size, size), torch.randn(size, size)
step("a tensor to the device and back", lambda: bool((a.cuda().cpu() == a).all()) or 1 / 0)
step("torch.zeros", lambda: float(torch.zeros(16, device="cuda").cpu().sum()))
step("addition", lambda: close((a.cuda() + b.cuda()).cpu(), a + b))
step("reduction", lambda: close(a.cuda().sum().cpu(), a.sum()))
step("matmul", lambda: close((a.cuda() @ b.cuda()).cpu(), a @ b))
step("training of a small network", training)
def rates():
    x, y = a.cuda(), b.cuda()
    return {"addition, us": timed(lambda: x + y, 200), "matmul, us": timed(lambda: x @ y, 50)}
step("rates", rates)
"""


def clean_environment(extra=None):
    """The environment without anything that leads to rgpu."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_") and k not in ("LD_PRELOAD", "LD_AUDIT")}
    environment.update(extra or {})
    return environment


class Outcome:
    """A program that has ended."""

    def __init__(self, status, stdout, stderr, seconds, late):
        self.status, self.stdout, self.stderr, self.seconds, self.late = status, stdout, stderr, seconds, late

    @property
    def well(self):
        return self.status == 0 and not self.late

    def summary(self):
        status = "killed for lateness" if self.late else self.status
        return {"status": status, "seconds": round(self.seconds, 3), "stdout": self.stdout[-4000:], "stderr": self.stderr[-4000:]}


def run(command, limit, directory=None, extra=None):
    """Runs a program to its end, or kills it and what it started."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=directory,
                                 env=clean_environment(extra), start_new_session=True)
        late = False
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        seconds = time.monotonic() - begin
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return Outcome(child.returncode, texts[0], texts[1], seconds, late)


class Server:
    """`rgpu serve`, started when first needed and ended with the check."""

    def __init__(self, options, log):
        self.options, self.log = options, log
        self.child, self.address, self.problem = None, None, None

    def start(self):
        if self.address or self.problem:
            return
        command = [RGPU, "serve", "--listen", "127.0.0.1:0"] + self.options
        with open(self.log, "ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                          env=clean_environment(), start_new_session=True)
        said, lines = [], queue.Queue()

        def follow():
            for line in self.child.stdout:
                lines.put(line.decode(errors="replace"))
            lines.put(None)

        threading.Thread(target=follow, daemon=True).start()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                line = lines.get(timeout=1)
            except queue.Empty:
                continue
            if line is None:
                break
            said.append(line)
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found:
                self.address = found.group(0)
                return
        self.stop()
        with open(self.log, errors="replace") as log:
            said.append(log.read()[-1500:])
        self.problem = "rgpu serve did not start: " + " ".join(" ".join(said).split())[-1500:]

    def settle(self, limit=10):
        """Waits until no program is served any more: a program's memory is free once its server process has ended, which
        is shortly after the program."""
        end = time.monotonic() + limit
        while self.child and time.monotonic() < end:
            parents = set()
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/stat") as file:
                        parents.add(int(file.read().rsplit(")", 1)[1].split()[1]))
                except (OSError, ValueError, IndexError):
                    pass
            if self.child.pid not in parents:
                return
            time.sleep(0.02)

    def stop(self):
        if self.child and self.child.poll() is None:
            try:
                os.killpg(self.child.pid, signal.SIGTERM)
                self.child.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                try:
                    os.killpg(self.child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                self.child.wait()
        self.child = None


class State:
    """What is known so far, in a file that is whole at any time."""

    def __init__(self, directory, conditions):
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, "state.json")
        self.data = {"conditions": conditions, "steps": {}}
        if os.path.exists(self.path):
            with open(self.path) as file:
                found = json.load(file)
            if found.get("conditions") != conditions:
                sys.exit(f"{self.path} is of another check ({found.get('conditions')} instead of {conditions}): "
                         "name another folder with --results, or remove it")
            self.data = found
        self.steps = self.data["steps"]

    def keep(self, name, value):
        self.steps[name] = value
        temporary = self.path + ".new"
        with open(temporary, "w") as file:
            json.dump(self.data, file, indent=1)
        os.replace(temporary, self.path)


class Check:
    def __init__(self, arguments, manifest):
        self.arguments, self.manifest = arguments, manifest
        conditions = {"bundle": manifest["made"], "device": arguments.device, "driver": arguments.driver or "the machine's",
                      "native": "software GPU in the process" if arguments.dry_run else "the machine's driver",
                      "quick": arguments.quick}
        self.state = State(arguments.results, conditions)
        options = ["--device", arguments.device]
        if arguments.driver:
            options += ["--driver", arguments.driver]
        if arguments.libraries:
            options += ["--libraries", arguments.libraries]
        if arguments.workers:
            options += ["--workers", str(arguments.workers)]
        if arguments.memory:
            options += ["--memory", arguments.memory]
        self.server = Server(options, os.path.join(arguments.results, "server.log"))
        self.ways = [NATIVE] + [f"rgpu {t}" for t in arguments.transports]
        self.end = time.monotonic() + arguments.budget
        self.out_of_time = False

    def command(self, way, program):
        """The command that runs a program in a way; a text instead where it cannot be."""
        if way == NATIVE:
            return [RGPU, "run", "--in-process"] + self.software() + ["--"] + program if self.arguments.dry_run else program
        self.server.start()
        if self.server.problem:
            return self.server.problem
        transport = way.split()[1]
        return [RGPU, "run", "--server", self.server.address, "--transport", transport, "--"] + program

    def native_libraries(self):
        """Variables by which programs find NVIDIA's libraries in the folders that were named."""
        folders = [f for f in (self.arguments.libraries or "").split(":") if f]
        inner = [os.path.join(f, name, "lib") for f in folders if os.path.isdir(f) for name in sorted(os.listdir(f))]
        known = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        paths = folders + [path for path in inner if os.path.isdir(path)] + known
        return {"LD_LIBRARY_PATH": ":".join(paths)} if folders else None

    def software(self):
        """What the software GPU in a program's process is told."""
        workers = ["--workers", str(self.arguments.workers)] if self.arguments.workers else []
        return workers + (["--memory", self.arguments.memory] if self.arguments.memory else [])

    def start(self, way, program, limit=120):
        command = self.command(way, program)
        if isinstance(command, str):
            return Outcome(-1, "", command, 0, False)
        # Natively the dynamic loader has to find what the server is told.
        outcome = run(command, limit, extra=self.native_libraries() if way == NATIVE else None)
        if way != NATIVE:
            self.server.settle()
        return outcome

    def step(self, name, body):
        """Does a step, unless that was done before or time is up."""
        if name in self.state.steps and not self.arguments.again:
            return
        if time.monotonic() >= self.end:
            self.out_of_time = True
            return
        begin = time.monotonic()
        value = body()
        self.state.keep(name, value)
        print(f"  {name}: {value.get('verdict', 'done')} ({time.monotonic() - begin:.1f} s)", flush=True)

    # The parts.

    def environment(self):
        def body():
            probes = {way: self.probe(way) for way in self.ways}
            found = {"verdict": "done", "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                     "machine": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version(),
                     "rgpu": run([RGPU, "--version"], 20).stdout.strip(), "seen": probes}
            same = [{k: v for k, v in probe.items() if k in ("names", "memory", "cuda", "devices")} for probe in probes.values()]
            if any(other != same[0] for other in same[1:]):
                found["verdict"] = "differs"
            return found
        self.step("environment", body)

    def probe(self, way):
        outcome = self.start(way, [sys.executable, "-c", PROBE], 60)
        try:
            return json.loads(outcome.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return {"problem": (outcome.stderr or outcome.stdout or f"status {outcome.status}")[-800:]}

    def example(self, name):
        def body():
            program = [os.path.join(HERE, "examples", name)]
            outcomes = {way: self.start(way, program) for way in self.ways}
            right = {way: o.well and any(line.startswith(f"{name}: ok") for line in o.stdout.splitlines())
                     for way, o in outcomes.items()}
            result = {"seconds": {way: round(o.seconds, 3) for way, o in outcomes.items()}, "right": right}
            others = [way for way in self.ways if way != NATIVE]
            if not right[NATIVE]:
                result["verdict"] = "natively wrong" if any(right[w] for w in others) else "wrong everywhere"
            elif not all(right[w] for w in others):
                result["verdict"] = "wrong"
            else:
                result["verdict"] = "right"
                if any(outcomes[w].stdout != outcomes[NATIVE].stdout for w in others):
                    result["note"] = "the outputs differ"
            if result["verdict"] != "right" or "note" in result:
                result["outcomes"] = {way: o.summary() for way, o in outcomes.items()}
            return result
        self.step(f"examples/{name}", body)

    def library_program(self, name):
        def body():
            program = [os.path.join(HERE, "programs", name)]
            outcomes = {way: self.start(way, program, 240) for way in self.ways}
            right = {way: o.well and any(line.startswith(f"{name}: ok") for line in o.stdout.splitlines())
                     for way, o in outcomes.items()}
            result = {"seconds": {way: round(o.seconds, 3) for way, o in outcomes.items()}, "right": right}
            others = [way for way in self.ways if way != NATIVE]
            if not right[NATIVE] and "there is no cu" in outcomes[NATIVE].stderr:
                result["verdict"] = "the machine has not got the library"
            elif not right[NATIVE]:
                result["verdict"] = "natively wrong" if any(right[w] for w in others) else "wrong everywhere"
            else:
                result["verdict"] = "right" if all(right[w] for w in others) else "wrong"
            if result["verdict"] != "right":
                result["outcomes"] = {way: o.summary() for way, o in outcomes.items()}
            return result
        self.step(f"libraries/{name}", body)

    def libraries(self):
        for name in self.manifest.get("libraries", []):
            self.library_program(name)

    def error_case(self, name):
        def body():
            program = [os.path.join(HERE, "programs", "error_case"), name]
            outcomes = {way: self.start(way, program) for way in self.ways}
            native = outcomes[NATIVE]
            differences = {}
            # Where the message of a failed assertion is written, and whether in time, is not what is compared here.
            said = {way: [line for line in o.stdout.splitlines() if "Assertion `" not in line] for way, o in outcomes.items()}
            for way, outcome in outcomes.items():
                lines = list(difflib.unified_diff(said[NATIVE], said[way], NATIVE, way, lineterm="", n=0))
                if lines or outcome.status != native.status or outcome.late:
                    differences[way] = {"lines": lines, "status": outcome.status, "native status": native.status,
                                        "stderr": outcome.stderr[-1500:]}
            result = {"verdict": "differs" if differences else "same", "transcript": said[NATIVE]}
            seen = [way for way, o in outcomes.items() if "Assertion `" in o.stdout + o.stderr]
            if seen and len(seen) < len(outcomes):
                result["note"] = "the assertion's message is seen only " + " and ".join(seen)
            if not native.well:
                result["verdict"] = "natively ended otherwise" if not differences else "differs"
                result["native"] = native.summary()
            if differences:
                result["differences"] = differences
            return result
        self.step(f"errors/{name}", body)

    def errors(self):
        names = run([os.path.join(HERE, "programs", "error_case")], 20).stdout.split()
        if not names:
            sys.exit("programs/error_case cannot be run here")
        for name in names:
            self.error_case(name)

    def nvml(self):
        def body():
            program = [os.path.join(HERE, "programs", "nvml_queries")]
            # NVIDIA's own library is only asked, nothing is tried out on it.
            own = lambda way: [] if way != NATIVE or self.arguments.dry_run else ["native"]
            outcomes = {way: self.start(way, program + own(way)) for way in self.ways}
            answers = {way: set(line.strip() for line in o.stdout.splitlines() if line.startswith("  ")) for way, o in outcomes.items()}
            bad = [way for way, o in outcomes.items() if not o.well]
            result = {"verdict": "answered" if not bad else "failed: " + ", ".join(bad),
                      "outcomes": {way: o.summary() for way, o in outcomes.items() if not o.well}}
            result["answered otherwise"] = {way: sorted(answers[way] ^ answers[NATIVE])[:60] for way in self.ways if way != NATIVE}
            return result
        self.step("nvml/queries", body)

    def measure(self, part, program, limit=240):
        """One measurement in all ways, several times, in turn."""
        for number in range(1, self.arguments.rounds + 1):
            for way in self.ways:
                def body(way=way):
                    outcome = self.start(way, [os.path.join(HERE, "programs", "measure")] + program, limit)
                    results = {}
                    for line in outcome.stdout.splitlines():
                        try:
                            found = json.loads(line)
                            results[found["what"]] = [found["value"], found["unit"]]
                        except (ValueError, KeyError, TypeError):
                            pass
                    value = {"verdict": "done" if outcome.well else "failed", "results": results}
                    if not outcome.well:
                        value["outcome"] = outcome.summary()
                    return value
                self.step(f"{part}/{' '.join(program)}/{number}/{way}", body)

    def launches(self):
        self.measure("launches", ["launches", "2000" if self.arguments.quick else "200000"])
        self.measure("launches", ["small", "300" if self.arguments.quick else "20000"])

    def latency(self):
        self.measure("latency", ["latency", "30" if self.arguments.quick else "2000"])

    def copies_small(self):
        self.measure("copies-small", ["copies", str(4 * KIB), str(256 * KIB if self.arguments.quick else 16 * MIB)])

    def copies_large(self):
        if self.arguments.quick:
            self.measure("copies-large", ["copies", str(4 * MIB), str(4 * MIB)])
            return
        self.measure("copies-large", ["copies", str(64 * MIB), str(256 * MIB)])
        self.measure("copies-large", ["copies", str(GIB), str(GIB)])

    def pytorch(self):
        def body():
            size = "128" if self.arguments.quick else "1024"
            result = {"ways": {}}
            for way in self.ways:
                outcome = self.start(way, [sys.executable, "-c", TORCH, size], 240)
                steps = []
                for line in outcome.stdout.splitlines():
                    try:
                        steps.append(json.loads(line))
                    except ValueError:
                        pass
                failed = next((s for s in steps if s["error"]), None)
                missing = re.findall(r"rgpu: (\S+) is not implemented", outcome.stderr)
                result["ways"][way] = {"steps": steps, "first failure": failed, "not implemented": missing,
                                       "status": "killed for lateness" if outcome.late else outcome.status,
                                       "stderr": outcome.stderr[-1500:]}
                if way == NATIVE and failed and failed["step"] == "import torch":
                    return {"verdict": "there is no PyTorch here", "ways": result["ways"]}
            words = []
            for way, w in result["ways"].items():
                done = sum(not s["error"] for s in w["steps"])
                stop = w["first failure"]["step"] if w["first failure"] else ("" if w["status"] == 0 else f"status {w['status']}")
                text = f"{way} {done} steps" + (f", fails at {stop}" if stop else "")
                if w["not implemented"]:
                    text += f", first unsupported call {w['not implemented'][0]}"
                words.append(text)
            result["verdict"] = "; ".join(words)
            return result
        self.step("pytorch/first-steps", body)

    def parts(self):
        names = [n for n in self.manifest["examples"] if not self.arguments.only or self.arguments.only in n]
        def third(k):
            return lambda: [self.example(n) for n in names[k::3]]
        return {"environment": (self.environment, "driver, GPU and PyTorch, as programs see them natively and through rgpu"),
                "examples-1": (third(0), "a third of the examples, natively and through rgpu"),
                "examples-2": (third(1), "another third"), "examples-3": (third(2), "the rest"),
                "errors": (self.errors, "CUDA's error cases, call by call"),
                "libraries": (self.libraries, "programs that use NVIDIA's libraries of mathematics, where the machine has those"),
                "nvml": (self.nvml, "what nvidia-smi asks"),
                "launches": (self.launches, "launch rate, and a program of many small kernels"),
                "latency": (self.latency, "calls that wait for an answer"),
                "copies-small": (self.copies_small, "copies of 4 KiB to 16 MiB"),
                "copies-large": (self.copies_large, "copies of 64 MiB to 1 GiB"),
                "pytorch": (self.pytorch, "PyTorch's first steps")}


def measurements(steps, ways):
    """For each thing measured: unit, the middle value of each way, and the middle of the rounds' ratios to native."""
    rounds = {}
    for name, step in steps.items():
        pieces = name.split("/")
        if len(pieces) != 4 or "results" not in step:
            continue
        part, _, number, way = pieces
        for what, (value, unit) in step["results"].items():
            rounds.setdefault((part, what, unit), {}).setdefault(way, {})[number] = value
    table = []
    for (part, what, unit), by_way in rounds.items():
        row = {"part": part, "what": what, "unit": unit, "values": {}, "ratio": {}, "rounds": by_way}
        for way in ways:
            values = by_way.get(way, {})
            if values:
                row["values"][way] = statistics.median(values.values())
            both = [values[n] / by_way[NATIVE][n] for n in values if by_way.get(NATIVE, {}).get(n)]
            if way != NATIVE and both:
                row["ratio"][way] = statistics.median(both)
        table.append(row)
    return table


def number(value):
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def report(check):
    """Writes report.json and report.md. Returns what is not as it should be."""
    steps, ways, manifest = check.state.steps, check.ways, check.manifest
    conditions = check.state.data["conditions"]
    environment = steps.get("environment", {})
    native = environment.get("seen", {}).get(NATIVE, {})
    table = measurements(steps, ways)
    examples = {n.split("/", 1)[1]: s for n, s in steps.items() if n.startswith("examples/")}
    errors = {n.split("/", 1)[1]: s for n, s in steps.items() if n.startswith("errors/")}
    libraries = {n.split("/", 1)[1]: s for n, s in steps.items() if n.startswith("libraries/")}
    bad = [f"example {n}: {s['verdict']}" for n, s in examples.items() if s["verdict"] != "right"]
    bad += [f"program of libraries {n}: {s['verdict']}" for n, s in libraries.items() if s["verdict"] in ("wrong", "natively wrong", "wrong everywhere")]
    bad += [f"error case {n}: {s['verdict']}" for n, s in errors.items() if s["verdict"] != "same"]
    bad += [f"{n}: {s['verdict']}" for n, s in steps.items() if "results" in s and s["verdict"] != "done"]
    if environment.get("verdict") == "differs":
        bad.append("the device looks different through rgpu")
    nvml = steps.get("nvml/queries")
    if nvml and nvml["verdict"] != "answered":
        bad.append(f"NVML: {nvml['verdict']}")
    data = {"date": environment.get("date"), "driver": native.get("driver"), "cuda": native.get("cuda"),
            "gpus": native.get("names"), "memory": native.get("memory"), "conditions": conditions, "ways": ways,
            "environment": environment, "examples": examples, "errors": errors, "libraries": libraries, "nvml": nvml, "measurements": table,
            "pytorch": steps.get("pytorch/first-steps"), "not as it should be": bad, "bundle": manifest}
    with open(os.path.join(check.arguments.results, "report.json"), "w") as file:
        json.dump(data, file, indent=1)

    out = ["# rgpu on a GPU: the check's report", ""]
    dry = conditions["native"] != "the machine's driver"
    if dry:
        out += ["**A dry run: no GPU was used.** \"Native\" is the software GPU in the program's own process; nothing here says "
                "anything about real hardware.", ""]
    cuda = native.get("cuda") or 0
    out += [f"- date: {environment.get('date', 'unknown')}", f"- GPU: {', '.join(native.get('names') or ['unknown'])}",
            f"- driver: {native.get('driver', 'unknown')}, CUDA {cuda // 1000}.{cuda % 1000 // 10}",
            f"- machine: {environment.get('machine', 'unknown')}, {environment.get('cpus', '?')} processors",
            f"- rgpu: {environment.get('rgpu', 'unknown')}, commit {manifest.get('commit', 'unknown')}",
            f"- server: `--device {conditions['device']}`, driver {conditions['driver']}", ""]
    if native.get("pcie_generation"):
        out.insert(-1, f"- PCIe: generation {native['pcie_generation']}, {native.get('pcie_lanes', '?')} lanes")
    out += ["## Not as it should be", ""] + ([f"- {b}" for b in bad] or ["Nothing, in what was run so far."]) + [""]
    if libraries:
        out += ["## Libraries of mathematics", ""] + [f"- {n}: {s['verdict']}" for n, s in sorted(libraries.items())] + [""]
    if examples:
        right = sum(s["verdict"] == "right" for s in examples.values())
        out += ["## Examples", "", f"{right} of {len(examples)} are right in every way ({len(manifest['examples'])} in all).", "",
                "| example | verdict | " + " | ".join(f"{w}, s" for w in ways) + " |", "| --- " * (2 + len(ways)) + "|"]
        for name, s in sorted(examples.items()):
            times = " | ".join(number(s["seconds"].get(w)) for w in ways)
            out.append(f"| {name} | {s['verdict']}{' (' + s['note'] + ')' if 'note' in s else ''} | {times} |")
        out.append("")
    if errors:
        out += ["## Error cases", "", "Each call's answer, natively and through rgpu.", "", "| case | verdict |", "| --- | --- |"]
        out += [f"| {n} | {s['verdict']}{' (' + s['note'] + ')' if 'note' in s else ''} |" for n, s in errors.items()] + [""]
        for n, s in errors.items():
            for way, d in s.get("differences", {}).items():
                out += [f"{n}, {way}:", "", "```diff"] + (d["lines"][:40] or [f"status {d['status']} instead of {d['native status']}"]) + ["```", ""]
    if table:
        out += ["## Measurements", "", f"The middle of {check.arguments.rounds} rounds, in each of which all ways were run in turn. "
                "The ratio is rgpu's value by the native one.", "",
                "| what | unit | " + " | ".join(ways) + " | " + " | ".join(f"{w} / native" for w in ways[1:]) + " |",
                "| --- " * (1 + 2 * len(ways)) + "|"]
        for row in table:
            values = " | ".join(number(row["values"].get(w)) for w in ways)
            ratios = " | ".join(number(row["ratio"].get(w)) for w in ways[1:])
            out.append(f"| {row['what']} | {row['unit']} | {values} | {ratios} |")
        out.append("")
    if nvml:
        out += ["## NVML", "", f"{nvml['verdict']}."]
        for way, lines in nvml.get("answered otherwise", {}).items():
            if lines:
                out += ["", f"Otherwise, natively or through {way} (readings change from one moment to the next):", "", "```"] + lines + ["```"]
        out.append("")
    torch = steps.get("pytorch/first-steps")
    if torch:
        out += ["## PyTorch", "", torch["verdict"] + ".", ""]
        for way, w in torch.get("ways", {}).items():
            out += [f"- {way}: {s['step']}: {s['error'] or s['value']}" for s in w["steps"]]
            out += [f"- {way}: not implemented: {', '.join(dict.fromkeys(w['not implemented']))}"] if w["not implemented"] else []
        out.append("")
    with open(os.path.join(check.arguments.results, "report.md"), "w") as file:
        file.write("\n".join(out))
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", default=[], metavar="NAME", help="only this part; may be given several times, or with commas")
    parser.add_argument("--list", action="store_true", help="name the parts, and what is done of them")
    parser.add_argument("--results", default="gpu-check-results", metavar="DIR", help="where the outcomes are kept [default: %(default)s]")
    parser.add_argument("--device", default="nvidia", help="the server's device [default: %(default)s]")
    parser.add_argument("--driver", metavar="PATH", help="the server's driver, where it is not the machine's; `shim` is the bundle's own library")
    parser.add_argument("--libraries", metavar="FOLDER[:FOLDER...]",
                        help="where NVIDIA's libraries are (cuBLAS, ...), such as Python's site-packages/nvidia [default: looked for]")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU: \"native\" is the software GPU in the program's process")
    parser.add_argument("--quick", action="store_true", help="little work, to see whether everything runs")
    parser.add_argument("--rounds", type=int, help="how often each measurement is made [default: 3; 1 with --quick]")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS", help="begin no further step after this time")
    parser.add_argument("--transports", default="tcp,shm", metavar="LIST", help="how rgpu connects [default: %(default)s]")
    parser.add_argument("--workers", type=int, help="processor cores of each software GPU")
    parser.add_argument("--memory", help="memory of each GPU that the server hands out, such as 512M [default: all]")
    parser.add_argument("--only", metavar="TEXT", help="only examples whose name contains this")
    parser.add_argument("--again", action="store_true", help="do again what was done before")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.transports = arguments.transports.split(",")
    arguments.results = os.path.abspath(arguments.results)
    if arguments.driver == "shim":
        arguments.driver = SHIM
    with open(os.path.join(HERE, "manifest.json")) as file:
        manifest = json.load(file)
    # Ended from outside, it still ends its server and writes its report.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    check = Check(arguments, manifest)
    parts = check.parts()
    if arguments.list:
        for name, (_, what) in parts.items():
            print(f"{name:14} {what}")
        print(f"{len(check.state.steps)} steps are done, kept in {check.state.path}")
        return 0
    wanted = [name for names in arguments.part for name in names.split(",")] or list(parts)
    wanted = [p for name in wanted for p in (["examples-1", "examples-2", "examples-3"] if name == "examples" else
                                             ["copies-small", "copies-large"] if name == "copies" else [name])]
    unknown = [name for name in wanted if name not in parts]
    if unknown:
        print(f"There is no part {', '.join(unknown)}; there are {', '.join(parts)}", file=sys.stderr)
        return 2
    try:
        check.environment()
        for name in wanted:
            print(f"{name}:", flush=True)
            parts[name][0]()
    finally:
        check.server.stop()
        bad = report(check)
    for problem in bad:
        print(f"NOT AS IT SHOULD BE: {problem}")
    if check.out_of_time:
        print("Time was up: run it again to go on")
    print(f"{len(check.state.steps)} steps are done; the report: {os.path.join(arguments.results, 'report.md')}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
