"""Writes rgpu's wheel: a zip file with fixed times and order, so that the same binaries make the same bytes."""

import argparse
import base64
import hashlib
import pathlib
import time
import zipfile

DESCRIPTION = """\
rgpu lets unmodified CUDA programs use GPUs that their machine does not have: `rgpu run --server HOST:PORT -- CMD`, or a software GPU
inside the program: `rgpu run --in-process -- python train.py`. This wheel has the `rgpu` command and its library.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("version", "tag", "command", "library"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    said = parser.parse_args()

    root = pathlib.Path(__file__).resolve().parents[2]
    information = f"rgpu-{said.version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: rgpu\nVersion: {said.version}\n"
        "Summary: CUDA programs on GPUs that are not in this machine\n"
        "License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\n"
        "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n" + DESCRIPTION
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: rgpu\nRoot-Is-Purelib: false\nTag: {said.tag}\n"
    files = [
        # `rgpu` looks for its library in ../lib/rgpu, too.
        (f"rgpu-{said.version}.data/scripts/rgpu", pathlib.Path(said.command).read_bytes(), 0o755),
        (f"rgpu-{said.version}.data/data/lib/rgpu/librgpu.so", pathlib.Path(said.library).read_bytes(), 0o755),
        (f"{information}/licenses/LICENSE-MIT", (root / "LICENSE-MIT").read_bytes(), 0o644),
        (f"{information}/licenses/LICENSE-APACHE", (root / "LICENSE-APACHE").read_bytes(), 0o644),
        (f"{information}/METADATA", metadata.encode(), 0o644),
        (f"{information}/WHEEL", wheel.encode(), 0o644),
    ]
    records = []
    for name, data, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        records.append(f"{name},sha256={digest},{len(data)}\n")
    records.append(f"{information}/RECORD,,\n")
    files.append((f"{information}/RECORD", "".join(records).encode(), 0o644))

    # A zip file knows no times before 1980.
    when = time.gmtime(max(said.epoch, 315532800))[:6]
    target = said.folder / f"rgpu-{said.version}-{said.tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for name, data, mode in files:
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data, compresslevel=6)
    print(target.name)


main()
