"""Which rungs the site's tests look at: chosen by what they do, for no test of the site names one."""
from __future__ import annotations

import json

from tools import rungs
from tools.site import traces

STAGES = rungs.names()
TRACES = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in traces.files()}
INSTRUCTIONS = {name: {site["instruction"] for site in trace["sites"]} for name, trace in TRACES.items()}

COPYING = next(rung for rung in rungs.known() if "cp.async.wait_group" in INSTRUCTIONS.get(rung.name, ()))  # the first that copies meanwhile
PLAIN = rungs.by_name()[COPYING.previous]  # and the one that it starts from, which waits for its loads
EARLIER = rungs.by_name()[PLAIN.previous]
WITH_MBARRIERS = [name for name, said in INSTRUCTIONS.items() if "mbarrier.try_wait.parity" in said]
LATER = rungs.by_name()[[name for name, said in INSTRUCTIONS.items() if not any("mbarrier" in word for word in said)][-1]]


def is_there(row: dict[str, str]) -> bool:
    """Of a row of docs/results: not of a rung that is gone."""
    return row.get("kind", "stage") != "stage" or rungs.split(row["stage"])[0] in STAGES
