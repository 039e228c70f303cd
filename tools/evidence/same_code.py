"""Is the machine code of the rungs' kernels what it was? For changes that should not touch it: a renaming, a new form.

Compiles each rung twice, as it is in BEFORE (with that tree's common/ and harness/) and as it is in AFTER, and compares
kernel by kernel, template argument by template argument. A rung that has moved to another folder is found by its name.
Exit code: 0 the same; 1 different; 2 usage, or a rung does not compile; 77 there is no nvcc.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.evidence import machine_code as mc


def tree_of(name: str, into: Path) -> Path:
    """The tree that a directory or a commit names; a commit's is unpacked into `into`."""
    if Path(name).is_dir():
        return Path(name).resolve()
    run = subprocess.run(["git", "-C", str(mc.ROOT), "archive", name], capture_output=True, check=False)
    if run.returncode:
        raise mc.CodeError(f"{name} is neither a directory nor a commit: {run.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(into)], input=run.stdout, check=True)
    return into


def compare(nvcc: str, stage: str, before: Path, after: Path, arch: str, scratch: Path) -> list[tuple[str, str]]:
    """Of each kernel its name and, if its code has changed, how."""
    code = []
    for side, tree in enumerate((before, after)):
        where = mc.stage_directories(tree)[stage]
        code.append(mc.compile_stage(nvcc, where, tree, arch, scratch / f"{stage}.{arch}.{side}.cubin"))
    found = []
    for old, new in mc.pairs(*code):
        if old is None or new is None:
            found.append(((old or new).name, "only after" if old is None else "only before"))
        else:
            found.append((old.name if old.name == new.name else f"{old.name}, now {new.name}", mc.difference(old, new)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="3, 03, kvpipe or 03_kvpipe; without one, all")
    parser.add_argument("--before", default="HEAD", metavar="REV|DIR", help="a commit or a tree (default: HEAD)")
    parser.add_argument("--after", default=str(mc.ROOT), metavar="REV|DIR", help="the same (default: the working tree)")
    parser.add_argument("--arch", action="append", metavar="SM",
                        help="80, 90a; may be repeated (default: both)")
    parser.add_argument("--jobs", type=int, default=2, help="rungs at a time (default: 2)")
    options = parser.parse_args()
    nvcc = mc.find_nvcc()
    if nvcc is None:
        print("same_code: there is no nvcc. Put it on PATH, or set CUDACXX.", file=sys.stderr)
        return mc.CANNOT_RUN
    with tempfile.TemporaryDirectory(prefix="same_code.") as directory, ThreadPoolExecutor(max(1, options.jobs)) as pool:
        try:
            scratch = Path(directory)
            (scratch / "before").mkdir()
            (scratch / "after").mkdir()
            before, after = tree_of(options.before, scratch / "before"), tree_of(options.after, scratch / "after")
            old, new = mc.stage_directories(before), mc.stage_directories(after)
            both = {stage: path for stage, path in new.items() if stage in old}
            stages = mc.chosen_stages(options.stages, both)
            for stage in sorted(set(old) ^ set(new)) if not options.stages else ():
                print(f"{stage}: only {'before' if stage in old else 'after'}, not compared", file=sys.stderr)
            work = [(stage, arch) for stage in stages for arch in options.arch or ["80", "90a"]]
            results = pool.map(lambda item: compare(nvcc, item[0], before, after, item[1], scratch), work)
            changed = 0
            for (stage, arch), found in zip(work, results):
                for name, how in found:
                    changed += bool(how)
                    print(f"{stage:<16} sm_{arch:<4} {name:<40} {how or 'same'}", flush=True)
        except mc.CodeError as error:
            pool.shutdown(cancel_futures=True)
            print(f"same_code: {error}", file=sys.stderr)
            return mc.USAGE
    print(f"{changed} kernels differ." if changed else "All kernels are the same.")
    return mc.DIFFERENT if changed else mc.DONE


if __name__ == "__main__":
    sys.exit(main())
