"""Data and programs inside a page: JSON that cannot end its element, packed arrays, a policy that lets nothing in."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from genoformer.report.markup import Markup, element

_LEVEL = 9
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def json_text(value: Any) -> str:
    """Return JSON in ASCII without ``<``, ``>`` and ``&``, so that nothing in it is HTML; undefined numbers raise.

    >>> json_text({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def json_block(identifier: str, value: Any) -> Markup:
    """Return an element that holds data and is never run."""
    return element("script", Markup(json_text(value)), attributes={"type": "application/json", "id": identifier})


def packed(values: np.ndarray | bytes) -> str:
    """Return bytes, or an array of uint8, compressed (zlib) and in base64, for `inflate` of assets/js/data.js."""
    data = values if isinstance(values, bytes) else np.ascontiguousarray(values, dtype=np.uint8).tobytes()
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def quantized(values: np.ndarray, *, low: float = 0.0, high: float = 1.0, levels: int = 254) -> np.ndarray:
    """Return values as steps from low (0) to high (``levels``), beyond them cut, 255 where they are NaN: uint8."""
    width = high - low if high > low else 1.0
    with np.errstate(invalid="ignore"):
        steps = np.rint((values.astype(np.float32, copy=False) - low) * (levels / width)).clip(0, levels)
    return np.where(np.isnan(steps), 255, steps).astype(np.uint8)


def policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    """Return a Content-Security-Policy that allows these scripts and styles, and nothing else from anywhere."""
    allowed = [
        f"{kind}-src {' '.join(map(_digest, texts))}" for kind, texts in (("script", scripts), ("style", styles))
    ]
    return "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode('ascii')}'"
