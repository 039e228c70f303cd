"""attention() with JAX, on a GPU where it has one.   python3 -m unittest discover -s python/tests -p jax_tests.py"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
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
        for change in (jax.grad, jax.jacfwd, lambda loss: jax.jit(jax.grad(loss)), lambda loss: lambda q: jax.jvp(loss, (q,), (q,)), jax.hessian):
            with self.assertRaisesRegex(NotImplementedError, "Derivatives"):
                change(lambda q: flash_ladder.attention(q, k, v).astype(jnp.float32).sum())(q)

    def test_numbers_are_numbers(self):
        q, k, v = (each.astype(jnp.bfloat16) for each in arrays())
        wanted = flash_ladder.attention(q, k, v, scale=float(np.float32(0.3)), softcap=5.0, window=(9, 3))
        for one in (jnp.float32, np.float32, jnp.asarray):
            found = flash_ladder.attention(q, k, v, scale=one(0.3), softcap=one(5.0), window=(jnp.int32(9), np.int64(3)))
            self.assertTrue((found == wanted).all())
        self.assertTrue((flash_ladder.attention(q, k, v, causal=jnp.bool_(True)) == flash_ladder.attention(q, k, v, causal=True)).all())
        self.assertEqual(flash_ladder.why(q, k, v, scale=jnp.float32(0.5)), flash_ladder.why(q, k, v, scale=0.5))
        third = jnp.float32(0.3)  # inside of jit it would be traced
        self.assertTrue((jax.jit(lambda q: flash_ladder.attention(q, k, v, scale=third))(q) == flash_ladder.attention(q, k, v, scale=0.3)).all())
        for name, value in (("scale", 0.3), ("softcap", 5.0), ("causal", True)):  # which jit does not know
            with self.assertRaisesRegex(TypeError, name):
                jax.jit(lambda value: flash_ladder.attention(q, k, v, **{name: value}))(value)
        for options, words in (({"scale": jnp.ones(2)}, "scale"), ({"scale": jnp.float32(-0.25)}, "-0.25"), ({"window": (jnp.float32(2.5), 0)}, "2.5"), ({"causal": jnp.int32(1)}, "causal")):
            with self.assertRaisesRegex((TypeError, ValueError), words):
                flash_ladder.attention(q, k, v, **options)

    def test_ctrl_c(self):
        """Under jit XLA makes an error of it."""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        q = jnp.zeros((1, 32768, 1, 128), jnp.float16)
        if jax.local_devices()[0].platform != "cpu":
            self.skipTest("a GPU is done before")
        for call, error in ((flash_ladder.attention, KeyboardInterrupt), (jax.jit(flash_ladder.attention), jax.errors.JaxRuntimeError)):
            timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            began = time.monotonic()
            with self.assertRaises(error):
                call(q, q, q).block_until_ready()
            self.assertLess(time.monotonic() - began, 10)
        few = arrays()
        self.assertLess(abs(flash_ladder.attention(*few) - reference.attention(*few)[0]).max(), reference.tolerance(few[2]))

    def test_where_no_kernel_runs(self):
        of_heads = jnp.array([0.5, -2.0])
        for n, n_k in ((3, 0), (0, 5), (0, 0)):
            for b in (0, 1, 2):
                for options in ({}, {"causal": True}, {"sink": of_heads}, {"sink": of_heads, "softcap": 5.0, "alibi_slopes": of_heads, "window": (3, 0)}):
                    q, k, v = (jnp.ones((b, rows, 2, 128), jnp.bfloat16) for rows in (n, n_k, n_k))
                    wanted, wanted_lse = reference.attention(q, k, v, **options)
                    for call in (flash_ladder.attention, jax.jit(flash_ladder.attention, static_argnames=("causal", "softcap", "window", "return_lse"))):
                        out, lse = call(q, k, v, return_lse=True, **options)
                        with self.subTest(b=b, n=n, n_k=n_k, **{name: 0 for name in options}):
                            self.assertEqual((out.shape, lse.shape), (wanted.shape, wanted_lse.shape))
                            self.assertTrue((out == wanted).all() and (lse == wanted_lse).all())


if __name__ == "__main__":
    unittest.main()
