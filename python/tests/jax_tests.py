"""attention() with JAX on the CPU.   python3 -m unittest discover -s python/tests -p jax_tests.py"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest

if importlib.util.find_spec("jax") is None:
    print("Skipped: this Python has no jax")
    sys.exit(77)

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

import flash_ladder
import reference


def arrays():
    return tuple(jax.random.normal(key, (1, 128, 2, 128), jnp.float16) for key in jax.random.split(jax.random.key(0), 3))


class Jax(unittest.TestCase):
    def test_it_is_attention_in_and_out_of_jit(self):
        q, k, v = arrays()
        wanted, wanted_lse = reference.attention(q, k, v)

        def call(q, k, v):
            return flash_ladder.attention(q, k, v, return_lse=True)

        for function in (call, jax.jit(call)):
            out, lse = function(q, k, v)
            self.assertIsInstance(out, jax.Array)
            self.assertLess(abs(out - wanted).max(), reference.tolerance(v))
            self.assertLess(abs(lse - wanted_lse).max(), 1e-4)
        self.assertTrue((jax.jit(flash_ladder.flash_attn_func)(q, k, v) == flash_ladder.attention(q, k, v)).all())

    def test_what_does_not_fit_is_refused(self):
        q, k, v = arrays()
        first = flash_ladder.rungs()[0]["rung"]
        for wrong, options, error in (((q[0], k, v), {}, ValueError), ((q, None, v), {}, TypeError), ((q, k, v), {"out": q}, NotImplementedError),
                                      ((q, k, v), {"rung": "no_such"}, ValueError), ((q, k, v), {"rung": first, "softcap": 5.0}, NotImplementedError)):  # fmt: skip
            with self.assertRaises(error):
                jax.jit(lambda: flash_ladder.attention(*wrong, **options))()
        with self.assertRaises(ValueError):
            jax.grad(lambda q: flash_ladder.attention(q, k, v).astype(jnp.float32).sum())(q)


if __name__ == "__main__":
    unittest.main()
