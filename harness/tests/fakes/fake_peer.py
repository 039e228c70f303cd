#!/usr/bin/env python3
"""A peer without a GPU, for the tests of the protocol. The argument says how it behaves."""
from __future__ import annotations

import json
import os
import sys
import time


def answer(**reply: object) -> None:
    print(json.dumps(reply), flush=True)


def main() -> None:
    behaviour = sys.argv[1]
    print("fake peer:", behaviour, file=sys.stderr, flush=True)
    if behaviour == "dies-at-once":
        sys.exit(3)
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
            if behaviour == "slow":
                time.sleep(3)
            if behaviour == "hangs":
                time.sleep(3600)
            error = {"negative-error": -1, "no-error": None, "word-for-error": "small"}.get(behaviour, 2.1e-5)
            answer(ok=True, name="fake" if behaviour == "good" else f"fake-{behaviour}", version=f"n={request['n']} {request['dtype']} {request['inputs']}",
                   **({} if error is None else {"max_err": error}), **({"flops": 1e15} if behaviour == "boasts" else {}),
                   **({"kind": "ceiling", "flops": 1e12} if behaviour == "ceiling" else {}))
        if operation == "run":
            if behaviour == "dies":
                print("Traceback: CUDA out of memory", file=sys.stderr, flush=True)
                sys.exit(3)
            if behaviour == "aborts":
                os.abort()
            if behaviour == "hangs-in-run":
                time.sleep(3600)
            ms = {"no-time": "soon", "instant": 1e-300}.get(behaviour, 2.5 * request["launches"])
            answer(ok=True, ms=ms)


if __name__ == "__main__":
    main()
