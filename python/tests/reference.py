"""What attention is, in float64, and what a 16-bit kernel may be off by."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for matrices as small as these

import numpy as np  # noqa: E402


def attention(q, k, v, *, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, mask_intervals=None, seen=True):
    """O as [b, n, h, d] and LSE as [b, h, n]. `seen`: and of the pairs, [b, h, n_q, n_k] or what broadcasts to that, these alone."""
    q, k, v = (np.asarray(each, np.float64).transpose(0, 2, 1, 3) for each in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(each, group, axis=1) for each in (k, v))
    n_q, n_k = q.shape[2], k.shape[2]
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    distance = np.arange(n_k) - (np.arange(n_q)[:, None] + n_k - n_q)  # of a key behind the query's own
    if alibi_slopes is not None:
        scores -= np.asarray(alibi_slopes, np.float64)[:, None, None] * abs(distance)
    left, right = window or (-1, -1)
    hidden = ((left >= 0) & (distance < -left)) | ((right >= 0) & (distance > right)) | (causal & (distance > 0))
    if mask_intervals is not None:
        first, end = (np.asarray(each, np.int64)[:, None, :, None] for each in mask_intervals)
        hidden = hidden | (np.arange(n_k) < first) | (np.arange(n_k) >= end)
    scores = np.where(hidden | ~np.asarray(seen), -np.inf, scores)
    if sink is not None:
        scores = np.concatenate([scores, np.broadcast_to(np.asarray(sink, np.float64)[:, None, None], (*scores.shape[:3], 1))], -1)
        v = np.concatenate([v, np.zeros((*v.shape[:2], 1, v.shape[3]))], 2)
    with np.errstate(divide="ignore"):
        most = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isinf(most), 0, most))
        total = weights.sum(-1, keepdims=True)
        lse = np.where(np.isinf(most), 0, most) + np.log(total)
    return (weights @ v / np.where(total == 0, 1, total)).transpose(0, 2, 1, 3), lse[..., 0]


def tolerance(v, element: str = "float16") -> float:
    """Weights and result are rounded once each, sums are not."""
    eps = {"float16": 2**-10, "bfloat16": 2**-7}[element]
    return eps * float(np.abs(np.asarray(v, np.float64)).max(initial=1))
