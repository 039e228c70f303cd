"""A cage for one command that runs what a stranger wrote, by the system's own tools and without root.

With bubblewrap (bwrap): no network, no files but those that are named, read-only, an empty /tmp that is gone afterwards, no sight of other
processes, and all of its processes end with it. Without it, the limits alone: course/grading.md says what then protects against what.
In both: limits on time, memory, processes, sizes and numbers of files and on output; and root hands its rights in first. Where the
memory of the whole machine runs out, what is in a cage is the first that the system ends.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.1  # between two looks at what is held; for all processes of a machine a look takes long, and ten times as long passes to the next
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d", "/nix/store")
NOBODYS = 60_000  # root takes a user id from here on for each cage, so that processes are counted for each by itself
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)


@dataclass(frozen=True)
class Limits:
    seconds: float = 180  # on the clock
    memory: int = 3 << 30  # that all its processes hold together; a check reserves addresses by the 100 GB, so those are free
    processes: int = 64 + 4 * (os.cpu_count() or 1)  # and threads, of which the emulator has one a core; no more than three quarters for long
    file_bytes: int = 64 << 20  # one file; four times as much for all of /tmp
    files: int = 128  # open at once
    output: int = 8 << 20


@dataclass(frozen=True)
class Ended:
    code: int  # negative: a signal's
    stopped: str  # what it had too much of: "", time, memory, processes or output
    stdout: bytes
    stderr: bytes

    @property
    def killed(self) -> bool:
        """By somebody else than its cage, and without a chance to say anything; bubblewrap tells of it as a shell does."""
        return not self.stopped and self.code in (-signal.SIGKILL, 128 + signal.SIGKILL)


def memory_available(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that this machine can still give, or the control group that this process is in (a container's, a batch system's)."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
        lines = (proc / "meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    limits = [groups / "memory" / "memory.limit_in_bytes"]  # of cgroup v1, as a container sees its own
    with contextlib.suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root, name = (groups, "memory.max") if not controllers else (groups / "memory", "memory.limit_in_bytes")
            if controllers in ("", "memory"):
                mine = root / path.lstrip("/")
                limits += [folder / name for folder in (mine, *mine.parents) if folder.is_relative_to(root)]
    for file in limits:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            found.append(int(file.read_text()))
    return min(found)


def family(ancestor: int) -> dict[int, tuple[int, int]]:
    """A process and all that it has started, and they: each one's threads, and the bytes that it holds in memory."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, tuple[int, int]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
            sizes[int(entry)] = int(fields[17]), int(fields[21]) * page
    found: dict[int, tuple[int, int]] = {}
    ahead = [ancestor]
    while ahead:
        process = ahead.pop()
        found[process] = sizes.get(process, (0, 0))
        ahead += children.get(process, [])
    return found


def held_by(processes: Iterable[int]) -> int:
    """Bytes in memory; of those that are gone, none. A look that costs next to nothing."""
    pages = 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def threads_of_this_user() -> int:
    total = 0
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                total += int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[17])
    return total


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Cage:
    """`reads`: what a command may read, always; it sees nothing else but the system's programs and libraries."""

    def __init__(self, kind: str, reads: list[Path], limits: Limits = Limits()):
        self.kind = kind
        self.reads = reads
        self.limits = limits

    @property
    def closed(self) -> bool:
        return self.kind == "bubblewrap"

    def _outer(self, reads: Sequence[Path]) -> list[str]:
        if not self.closed:
            return []
        command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
                   "--unshare-cgroup-try"]
        # Root needs no user namespace, and becomes somebody else within.
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.getuid() == 0 else ["--unshare-user"]
        command += ["--perms", "0755", "--dir", "/etc"]
        for path in SYSTEM:
            if os.path.islink(path):
                command += ["--symlink", os.readlink(path), path]
            elif os.path.exists(path):
                command += ["--ro-bind", path, path]
        command += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(4 * self.limits.file_bytes), "--tmpfs", "/tmp"]
        visible = [*self.reads, *reads]
        for folder in sorted({parent for path in visible for parent in path.parents} - {Path("/"), Path("/tmp")}):
            if Path("/usr") not in (folder, *folder.parents):
                command += ["--perms", "0755", "--dir", str(folder)]  # made by itself, it would be root's alone
        for path in visible:
            command += ["--ro-bind", str(path), str(path)]
        return [*command, "--chdir", "/tmp", "--"]

    def _inner(self, slot: int) -> list[str]:
        command: list[str] = []
        processes = self.limits.processes
        if os.getuid() == 0:
            user = str(NOBODYS + slot % 5000)
            command += ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--"]
        elif not self.closed:
            processes += threads_of_this_user()  # who are counted with it
        if shutil.which("choom"):
            command += ["choom", "-n", "1000", "--"]  # the highest; to go up takes no rights
        limits = self.limits
        command += ["prlimit", f"--cpu={int(limits.seconds * 4) + 1}", f"--nproc={processes}",
                    f"--fsize={limits.file_bytes}", f"--nofile={limits.files}", "--core=0", "--memlock=0", "--"]
        return command

    def _start(self, command: Sequence[str], scratch: str, reads: Sequence[Path]) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._outer(reads), *self._inner(os.getpid()), *command], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=scratch or None,
                                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": scratch or "/tmp", "LC_ALL": "C"})

    def run(self, command: list[str], given: bytes = b"", reads: Sequence[Path] = ()) -> Ended:
        """`reads`: what this one may read besides. The command ends, with all that it has started, before this returns."""
        scratch = None if self.closed else tempfile.mkdtemp(prefix="ladder-cage-")
        if scratch:
            os.chmod(scratch, 0o777)
        before = adopt()  # a bubblewrap ends its own
        try:
            process = self._start(command, scratch or "", reads)
            try:
                with contextlib.suppress(BrokenPipeError):
                    assert process.stdin
                    process.stdin.write(given)  # far less than a pipe holds
                    process.stdin.close()
                return self._attend(process)
            finally:
                self._end(process, before)
        finally:
            if scratch:
                shutil.rmtree(scratch, ignore_errors=True)

    def _attend(self, process: subprocess.Popen[bytes]) -> Ended:
        said = {process.stdout: b"", process.stderr: b""}
        stopped = ""
        deadline = time.monotonic() + self.limits.seconds
        with selectors.DefaultSelector() as selector:
            for stream in said:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            next_look, known = 0.0, [process.pid]
            # Its own end is what counts: a child that it left may hold the pipes open for ever.
            while not stopped:
                ended = process.poll() is not None
                for key, _ in selector.select(0 if ended else LOOK_S):
                    part = os.read(key.fd, 1 << 16)
                    said[key.fileobj] += part
                    if not part:
                        selector.unregister(key.fileobj)
                    if len(said[key.fileobj]) > self.limits.output:
                        stopped = "output"
                    ended = ended and not part
                if ended:
                    break
                now = time.monotonic()
                if now > deadline:
                    stopped = "time"
                elif held_by(known) > self.limits.memory:  # gigabytes a second can be taken: this look waits for nobody
                    stopped = "memory"
                elif now > next_look:
                    held = family(process.pid)
                    known = list(held)
                    if sum(size for _, size in held.values()) > self.limits.memory:
                        stopped = "memory"
                    elif sum(threads for threads, _ in held.values()) > self.limits.processes * 3 // 4:
                        stopped = "processes"
                    next_look = time.monotonic() + max(LOOK_S, 10 * (time.monotonic() - now))
                if not selector.get_map() and not stopped:
                    time.sleep(0.01)
        process.kill()
        process.wait()
        return Ended(process.returncode, stopped, said[process.stdout], said[process.stderr])

    @staticmethod
    def _end(process: subprocess.Popen[bytes], before: set[int]) -> None:
        """Everything that this process has started, however often it has forked meanwhile."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        end_all(before)
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def adopt() -> set[int]:
    """Orphans become children of this process from here on, where they are found. Who is there already."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return set(family(os.getpid()))


def end_all(before: set[int]) -> None:
    """All that this process has started since, however often it forks meanwhile."""
    while left := set(family(os.getpid())) - before:
        for child in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)


class NoCage(Exception):
    """The probe runs in none of them: why, for each."""


def best(reads: list[Path], probe: list[str], limits: Limits = Limits()) -> tuple[Cage, str]:
    """The strongest cage in which the probe runs, and why none that is stronger does."""
    why = [] if shutil.which("bwrap") else ["bubblewrap is not installed:  apt-get install bubblewrap"]
    for kind in ("limits",) if why else ("bubblewrap", "limits"):
        cage = Cage(kind, reads, limits)
        ended = cage.run(probe)
        if ended.code == 0:
            return cage, "\n".join(why)
        why.append((ended.stderr.decode(errors="replace").strip() or f"{probe[0]} ended with {ended.code}").splitlines()[0])
    raise NoCage("\n".join(why))
