"""How a program ends, for tests that run one."""
from __future__ import annotations

import subprocess


def ended(run: subprocess.CompletedProcess, code: int | None) -> subprocess.CompletedProcess:
    """The run; a failure with all that it said, where it should have ended with another code."""
    if code not in (None, run.returncode):
        raise AssertionError(f"exit code {run.returncode}, not {code}: {run.args}\n{run.stdout or ''}\n{run.stderr or ''}")
    return run
