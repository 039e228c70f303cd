"""A class of students who are not there: the solution in many hands, ways around it, faults, and attacks on the judge.

Attacks come in two kinds. Some are refused by their text. The others are what a determined student may write: C and its library are
called by address, past every check of names, so that only the cage and the sealed report stand between them and the marks.
"""
from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
from dataclasses import dataclass

from tools import rungs
from tools.course import cage as cages, exercises
from tools.course.exercises import Exercise

KNOWN = "__cxa_finalize"  # of the C library, in every program
EXERCISE = "02a_swizzle"  # whose blank is the body of a function of a row and a chunk
FORGED = '[{\\"ok\\":true,\\"failures\\":[],\\"counters\\":{}}]'


@dataclass(frozen=True)
class Member:
    student: str
    text: str
    reason: str  # why it has not all marks; "passed"
    says: str = ""  # and is told


@functools.cache
def isolated() -> bool:
    """Whether an attack can reach what belongs to whoever runs this."""
    return os.geteuid() == 0 or cages.best([], ["true"])[0].closed


@functools.cache
def to_library() -> int:
    """From smem_base(), whose address a kernel may take, to where the judge keeps the address of a function of the C library."""
    def said(*command: str) -> str:
        return subprocess.run([*command, str(rungs.program())], capture_output=True, text=True, check=True).stdout

    known = re.search(r"^(\w+) T _ZN8emulated9smem_baseEv$", said("nm"), re.M)
    kept = re.search(rf"^(\w+) .*GLOB_DAT.* {KNOWN}(@|$)", said("readelf", "-rW"), re.M)
    assert known and kept
    return int(kept[1], 16) - int(known[1], 16)


def called(function: str, *arguments: str) -> str:
    library = ctypes.CDLL("libc.so.6")  # not None: a program that is not PIE has addresses of its own for some of them
    there, known = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in (function, KNOWN))
    return f"((long (*)(...))(*(char**)((char*)&smem_base + ({to_library()})) + ({there - known})))({', '.join(arguments)});"


def with_code(exercise: Exercise, code: str, early: bool = False) -> str:
    """The solution, with this before its first line: there each time that the kernel comes by, or once, when it is loaded."""
    skeleton, parts = exercise.skeleton(), exercises.blanks_of(exercise.solution())
    assert parts
    if early:  # the blank ends a function, so that more may follow it
        parts[0] = f"{parts[0]}}}\n\nstruct Early {{\n  Early() {{ {code} }}\n}} early;\n\ninline void nobody_calls() {{\n"
    else:
        parts[0] = f"  {code}\n{parts[0]}"
    return exercises.with_blanks(skeleton, parts)


def attackers(exercise: Exercise, victim: str) -> list[Member]:
    """`victim`: a file that must not change."""
    rung = rungs.named(exercise.rung).kernel
    refused = {
        "includes": f'#include "{rung}"', "imports": f'#import "{rung}"', "embeds": '#embed "/etc/passwd"',
        "incbin": 'asm(".incbin \\"/etc/passwd\\"");', "names": "ladder::stages();", "exits": "exit(0);",
        "prints": f'printf("{FORGED}");', "directive": '#pragma GCC include_alias("a", "b")', "declares": "int fork(); fork();",
    }
    members = [Member(f"refused_{name}", with_code(exercise, f"\n{code}\n"), "not_a_kernel", "kernel.cuh") for name, code in refused.items()]
    forged = called("write", "1", f'"{FORGED}"', f"{len(FORGED.encode().decode('unicode_escape'))}L")
    early = {
        "exits_early": (called("_exit", "0"), "no_verdict"),
        "forges": (forged + called("_exit", "0"), "no_verdict"),
        "forges_and_goes_on": (forged, "no_verdict"),
        "kills_all": (called("kill", "-1", "9") + called("kill", f"{called('getppid')[:-1]}", "9") + called("_exit", "0"), "no_verdict"),
        "closes": ("for (int i = 0; i < 99; ++i) " + called("close", "i"), "crashed"),
    }
    if not isolated():
        del early["kills_all"]  # it would: the tests, the terminal, the desktop
    members += [Member(name, with_code(exercise, code, True), reason) for name, (code, reason) in early.items()]
    members += [
        Member("floods", with_code(exercise, f"while (true) {called('write', '2', 'FLOOD', '4000L')}".replace("FLOOD", f'"{"x" * 4000}"'), True),
               "too_much_output"),
        Member("hoards", with_code(exercise, f"while (true) {called('memset', called('malloc', '1L << 26')[:-1], '1', '1L << 26')}", True),
               "too_much_memory"),
        Member("crashes", with_code(exercise, "*(volatile int*)8L = 1;", True), "crashed", "It crashed (SIGSEGV)"),
        Member("pokes", with_code(exercise, "*(volatile int*)(long)row = 1;"), "emulator_report", "plain-access"),
        Member("loops", with_code(exercise, "for (volatile int i = 0; i >= 0; i = 0) {}"), "emulator_report", "endless loop"),
        Member("loops_early", with_code(exercise, "for (volatile int i = 0; i >= 0; i = 0) {}", True), "too_much_time"),
        Member("forks", with_code(exercise, f"while (true) {called('fork')}", True), "too_much_processes"),
        # It tries, and goes on as a good student would. What it writes to is not there, or not for it.
        Member("writes", with_code(exercise, called("close", called("open", f'"{victim}"', "01101", "0666")[:-1])
                                   + called("unlink", f'"{victim}"'), True), "passed"),
    ]
    return members


def members(exercise: Exercise, victim: str, most: int) -> list[Member]:
    """That many, with each kind among them."""
    solution = exercise.solution()
    found = attackers(exercise, victim)
    found += [Member(f"hole_{i}", text, hole["refused"]) for i, (hole, text, _) in enumerate(exercise.loopholes())]
    end = f"  {exercises.END}\n"
    found += [
        Member("untouched", exercise.skeleton(), "untouched"),
        Member("syntax", solution.replace(end, f"  retrun;\n{end}", 1), "not_a_kernel", "error: 'retrun' was not declared"),
        Member("elsewhere", solution.replace("__syncthreads();", "__syncthreads(); __syncthreads();", 1), "outside", "outside of your parts"),
        Member("nothing", "", "outside"),
        Member("other", "int main() {}\n", "outside"),
        Member("wrong", with_code(exercise, "chunk &= 7;"), "emulator_report", "race-write-after-write"),
        Member("half", with_code(exercise, "return row * ROW_BYTES + (chunk ^ (row % 2)) * 16;"), "conflicts_differ"),
        Member("windows", solution.replace("\n", "\r\n"), "passed"),
    ]
    while len(found) < most:  # everybody else: two thirds of them right, the others on their way, and no two alike
        i = len(found)
        code = f"// student {i}"
        if i % 3 == 0:
            code += f"\n  return row * ROW_BYTES + (chunk ^ (row % {1 << (i // 3) % 3})) * 16;"
        found.append(Member(f"student_{i}", with_code(exercise, code), "conflicts_differ" if i % 3 == 0 else "passed"))
    return found
