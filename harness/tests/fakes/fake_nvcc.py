#!/usr/bin/env python3
"""An nvcc without a GPU, for the tests of marks for speed: of a kernel it makes a peer that answers rightly, and takes as many minutes a
launch as the kernel says in a comment `// fake: 2.5 minutes`; without one, 1. It only says so; but the bench believes no time that is less than
half of what has passed, and a busy machine may let seconds pass. Other words there: `wrong`, `dies`, `spies FILE`, `does not
compile`, and `boasts` of being a ceiling of its own FLOPs."""
from __future__ import annotations

import re
import sys
from pathlib import Path

PEER = '''#!/usr/bin/python3
import json, math, os, struct, sys
SAYS = {says!r}

def halves(path):
    data = open(path, "rb").read()
    return struct.unpack("<%de" % (len(data) // 2), data)

for line in sys.stdin:
    request = json.loads(line)
    reply = {{"ok": True}}
    if request["op"] == "prepare":
        files, n, d = request["tensors"], request["n"], request["d"]
        Q, K, V = (halves(files[name]) for name in "QKV")
        O = []
        for q in range(0, len(Q), d):
            head = q // (n * d) * n * d
            scores = [request["softmax_scale"] * sum(map(float.__mul__, Q[q:q + d], K[k:k + d])) for k in range(head, head + n * d, d)]
            most = max(scores)
            weights = [math.exp(score - most) for score in scores]
            sums = [0.0] * d
            for weight, v in zip(weights, range(head, head + n * d, d)):
                sums = [have + weight * value for have, value in zip(sums, V[v:v + d])]
            O.append(struct.pack("<%de" % d, *(value / sum(weights) for value in sums)))
        if SAYS == "wrong":
            O = [bytes(2 * d)] * len(O)
        reply |= {{"protocol": 2, "name": "yours", "version": ""}}
        if SAYS == "boasts":
            reply |= {{"kind": "ceiling", "flops": 1e30}}
        if SAYS.startswith("spies"):
            reply = {{"ok": False, "reason": "sees it" if os.path.exists(SAYS.split()[1]) else "sees nothing"}}
    elif request["op"] == "run":
        if SAYS == "dies":
            sys.exit("no more")
        reply["ms"] = request["launches"] * 6e4 * (float(SAYS.split()[0]) if SAYS.endswith("minutes") else 1.0)
    elif request["op"] == "output":
        with open(files["O"], "wb") as file:
            file.write(b"".join(O[row] for row in request["rows"]))
    print(json.dumps(reply), flush=True)
'''


def main(arguments: list[str]) -> int:
    source, output = Path(next(word for word in arguments if word.endswith(".cu"))), Path(arguments[arguments.index("-o") + 1])
    kernel = source.with_name("kernel.cuh").read_text()
    found = re.search(r"^// fake: (.*)$", kernel, re.M)
    says = found[1] if found else ""
    if says == "does not compile":
        sys.exit(f"{source.with_name('kernel.cuh')}(1): error: {says}")
    output.write_text(PEER.format(says=says))
    output.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
