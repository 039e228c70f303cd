"""A ring of processes (gloo) against one process.   python3 -m unittest discover -s python/tests -p ring_tests.py"""

from __future__ import annotations

import datetime
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest
import warnings

if importlib.util.find_spec("torch") is None:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import torch
import torch.distributed as dist

import flash_ladder
import flash_ladder.ring
import reference

warnings.simplefilter("ignore")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
RANKS = (2, 4) if os.environ.get("LADDER_WHOLE") == "1" else (2,)
B, H, D = 1, 2, 128


def inputs(n: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)  # one sequence, of which every rank takes its own numbers
    return [torch.randn(B, n, H, D, generator=generator).to(dtype) for _ in range(3)]


def one_rank(rank: int, ranks: int, n: int, dtype: torch.dtype, causal: bool, meeting: str, found) -> None:
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        shares = [flash_ladder.ring.share(each, rank, ranks) for each in inputs(n, dtype)]
        out, lse = flash_ladder.ring.attention(*shares, causal=causal, return_lse=True)
        found.put((rank, out.float().numpy(), lse.numpy()))
    except BaseException:  # or the others wait
        found.put((rank, traceback.format_exc(), None))
        raise


def one_of_two(rank: int, how: str, meeting: str, found) -> None:
    """The second one is lost when the ring begins; the first one tells what it hears, and when."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    dist.barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=5))
    if rank == 1:
        if how == "still":
            time.sleep(100)
        os._exit(1)
    begin = time.monotonic()
    try:
        flash_ladder.ring.pass_on([torch.zeros(1, 64, H, D)], group)[1][-1].wait()
    except RuntimeError as error:
        found.put((str(error), time.monotonic() - begin))


class Ring(unittest.TestCase):
    def check(self, ranks: int, dtype: torch.dtype, causal: bool) -> None:
        n = 128 * ranks  # pieces of 64 rows
        text = f"b={B} h={H} n=128 d={D}" + " bf16" * (dtype == torch.bfloat16)
        for problem in [text] + [text + " causal", text.replace("n=128", "nq=128 nk=64"), text.replace("n=128", "nq=64 nk=128")] * causal:
            if flash_ladder.why(problem, lse=True).rung is None:
                self.skipTest(f"no rung takes {problem}, with LSE")
        with tempfile.TemporaryDirectory() as folder:
            context = multiprocessing.get_context("spawn")
            found = context.Queue()
            processes = [context.Process(target=one_rank, args=(rank, ranks, n, dtype, causal, f"{folder}/ring", found)) for rank in range(ranks)]
            for process in processes:
                process.start()
            answers = [found.get(timeout=300) for _ in processes]
            for process in processes:
                process.join()
        q, k, v = inputs(n, dtype)
        wanted, wanted_lse = reference.attention(*(each.double().numpy() for each in (q, k, v)), causal=causal)
        element = str(dtype).removeprefix("torch.")
        for rank, out, lse in answers:
            self.assertIsNotNone(lse, out)
            share = flash_ladder.ring.share(torch.from_numpy(wanted), rank, ranks).numpy()
            share_lse = flash_ladder.ring.share(torch.from_numpy(wanted_lse).transpose(1, 2), rank, ranks).transpose(1, 2).numpy()
            self.assertLess(abs(out - share).max(), reference.tolerance(v.double().numpy(), element))
            self.assertLess(abs(lse - share_lse).max(), 1e-4)

    def test_a_few_ranks(self):
        for ranks in RANKS:
            self.check(ranks, torch.float16, causal=False)

    def test_a_few_ranks_under_a_mask(self):
        for ranks in RANKS:
            self.check(ranks, torch.bfloat16, causal=True)

    def test_parts_meet_as_if_they_were_one(self):
        n, first = 70, 24
        q, k, v = inputs(n, torch.float32)
        for dtype, part_dtype in ((torch.float32, torch.bfloat16), (torch.bfloat16,) * 2, (torch.float16,) * 2):
            whole, whole_lse = torch.zeros(B, 2 * n, H, D, dtype=dtype), torch.full((B, H, 2 * n), -torch.inf)
            out, lse = whole[:, n:], whole_lse[..., n:]  # of a larger one: its other rows are nobody's business
            nothing = torch.zeros_like(out, dtype=part_dtype), torch.full_like(lse, -torch.inf).contiguous()
            flash_ladder.ring.merge(out, lse, *nothing)  # two empty parts are one, without a NaN
            self.assertTrue((out == 0).all() and (lse == -torch.inf).all())
            for keys in (slice(0, first), slice(first, None)):
                part, part_lse = map(torch.from_numpy, reference.attention(q, k[:, keys], v[:, keys]))
                flash_ladder.ring.merge(out, lse, part.to(part_dtype), part_lse.float())
                flash_ladder.ring.merge(out, lse, *nothing)
            wanted, wanted_lse = reference.attention(q, k, v)
            self.assertLess(abs(out.float().numpy() - wanted).max(), reference.tolerance(v.numpy(), str(part_dtype).removeprefix("torch.")))
            self.assertLess(abs(lse.numpy() - wanted_lse).max(), 1e-5)
            self.assertTrue((whole[:, :n] == 0).all() and (whole_lse[..., :n] == -torch.inf).all())

    def test_a_lost_rank_ends_the_others(self):
        for how in ("dead", "still"):
            with tempfile.TemporaryDirectory() as folder:
                context = multiprocessing.get_context("spawn")
                found = context.Queue()
                processes = [context.Process(target=one_of_two, args=(rank, how, f"{folder}/ring", found)) for rank in range(2)]
                for process in processes:
                    process.start()
                words, seconds = found.get(timeout=300)
                processes[0].join(timeout=30)
                self.assertEqual(processes[0].exitcode, 0)
                processes[1].kill()
                self.assertRegex(words, "(?i)timed out|closed|reset")
                self.assertLess(seconds, 30)

    def test_rows_that_cannot_be_shared(self):
        with self.assertRaises(ValueError):
            flash_ladder.ring.share(torch.zeros(1, 6, 1, 1), 0, 2)


if __name__ == "__main__":
    unittest.main()
