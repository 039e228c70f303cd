"""attention() with JAX, on a GPU where it has one.   python3 -m unittest discover -s python/tests -p jax_tests.py"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest

if importlib.util.find_spec("jax") is None:
    print("Skipped: this Python has no jax")
    sys.exit(77)

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # a GPU is not ours alone

import jax
import jax.numpy as jnp
import numpy as np

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

    def test_kinds_of_rungs_and_inputs(self):
        def draw(seed, *shape):
            return jax.random.normal(jax.random.key(seed), shape)

        # With copies and without; heads that share keys; functions of scores; no keys.
        for dtype, kv, n, options in ((jnp.float16, 4, 128, {"causal": True}), (jnp.bfloat16, 4, 128, {}), (jnp.bfloat16, 2, 200, {"causal": True, "window": (20, 0)}),
                                      (jnp.bfloat16, 1, 100, {"softcap": 5.0, "alibi_slopes": abs(draw(3, 4))}), (jnp.bfloat16, 2, 64, {"sink": draw(3, 4)}),
                                      (jnp.bfloat16, 2, 0, {})):  # fmt: skip
            inputs = q, k, v = draw(0, 2, 128, 4, 128).astype(dtype), draw(1, 2, n, kv, 128).astype(dtype), draw(2, 2, n, kv, 128).astype(dtype)
            with self.subTest(dtype=dtype, kv=kv, n=n, **options):
                if n and flash_ladder.why(*inputs, return_lse=True, **options).rung is None:
                    self.skipTest("no rung takes it")
                out, lse = jax.jit(lambda *inputs: flash_ladder.attention(*inputs, return_lse=True, **options))(*inputs)
                wanted, wanted_lse = reference.attention(*inputs, **options)
                self.assertEqual((out.dtype, out.shape), (q.dtype, q.shape))
                self.assertLess(abs(out - wanted).max(), reference.tolerance(v, out.dtype.name))
                self.assertTrue(np.allclose(lse, wanted_lse, atol=1e-3))

    def test_a_batch_of_calls(self):
        inputs = [jnp.stack([each, -each]) for each in arrays()]
        one_by_one = jnp.stack([flash_ladder.attention(*each) for each in zip(*inputs)])
        self.assertTrue((jax.vmap(flash_ladder.flash_attn_func)(*inputs) == one_by_one).all())

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
