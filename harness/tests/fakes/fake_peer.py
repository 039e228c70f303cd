#!/usr/bin/env python3
"""A peer without a GPU, for the tests of the protocol. The argument says how it behaves. `good` and most others keep protocol 1,
whose answers nobody judges; those of JUDGED keep protocol 2, and are wrong in their own ways."""
from __future__ import annotations

import json
import os
import sys
import time


JUDGED = ("zeros", "keeps-poison", "short-output", "no-output", "refuses-poison", "sings", "quicker-than-time")


def answer(**reply: object) -> None:
    print(json.dumps(reply), flush=True)


def main() -> None:
    behaviour = sys.argv[1]
    print("fake peer:", behaviour, file=sys.stderr, flush=True)
    if behaviour == "dies-at-once":
        sys.exit(3)
    prepared = 0
    for line in sys.stdin:
        request = json.loads(line)
        operation = request["op"]
        if operation == "quit":
            return
        if operation == "prepare":
            if behaviour == "refuses":
                answer(ok=False, reason="no module named torch")
                continue
            if behaviour == "rubbish":
                print("Segmentation fault? No: \x1b[31mhello\x1b[0m", flush=True)
                continue
            if behaviour == "half-line":
                print('{"ok":true', end="", flush=True)
                time.sleep(3600)
            if behaviour == "nameless":
                answer(ok=True)
                continue
            if behaviour == "talkative":  # more than a pipe holds
                for i in range(20000):
                    print(f"warning {i}", file=sys.stderr)
            if behaviour == "slow":  # until a file is there
                while not os.path.exists(os.environ["FAKE_PEER_GO"]):
                    time.sleep(0.05)
            if behaviour == "hangs":
                time.sleep(3600)
            prepared += 1
            task = request
            name = "fake" if behaviour == "good" else f"fake-{behaviour}"
            answer(ok=True, name=f"{name}-{prepared}" if behaviour == "renames-itself" else name,
                   version=f"n={request['n']} {request['dtype']} {request['inputs']}",
                   **({"protocol": 2} if behaviour in JUDGED else {}), **({"protocol": 7} if behaviour == "from-tomorrow" else {}),
                   **({"flops": 1e15} if behaviour == "boasts" else {}),
                   **({"kind": "ceiling", "flops": 1e12} if behaviour == "ceiling" else {}))
            if behaviour == "speaks-unasked":
                answer(ok=True, ms=0.001)
        if operation == "poison":
            answer(ok=behaviour != "refuses-poison", reason="no poison today")
        if operation == "output":
            if behaviour != "no-output":
                values = len(request["rows"]) * task["d"] - (behaviour == "short-output")
                with open(task["tensors"]["O"], "wb") as file:
                    file.write((b"\xff\xff" if behaviour == "keeps-poison" else b"\0\0") * values)
            answer(ok=True)
        if operation == "sing":
            answer(ok=behaviour == "sings", reason="no operation sing")
        if operation == "run":
            if behaviour == "dies":
                print("Traceback: CUDA out of memory", file=sys.stderr, flush=True)
                sys.exit(3)
            if behaviour == "aborts":
                os.abort()
            if behaviour == "hangs-in-run":
                time.sleep(3600)
            if behaviour == "quicker-than-time":
                time.sleep(0.2)
            if behaviour == "floods":
                print("x" * 3_000_000, flush=True)
            ms = {"no-time": "soon", "instant": 1e-300, "quicker-than-time": 0.01 * request["launches"]}.get(behaviour, 2.5 * request["launches"])
            answer(ok=True, ms=ms)


if __name__ == "__main__":
    main()
