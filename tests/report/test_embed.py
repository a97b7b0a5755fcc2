"""Data inside a page: no JSON ends its element, arrays come back, steps are right at their ends."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genoformer.report.embed import json_block, json_text, packed, policy, quantized

WORD = st.text(max_size=8)
ANY = st.recursive(st.none() | WORD, lambda one: st.lists(one) | st.dictionaries(WORD, one), max_leaves=4)


@settings(max_examples=40)
@given(ANY)
def test_json_holds_no_markup_and_comes_back(value):
    written = json_text(value)
    assert not set("<>&") & set(written)
    assert written.isascii()
    assert json.loads(written) == value


def test_a_block_ends_where_it_should():
    block = json_block("data", {"name": "</script><script>alert(1)</script><!--"})
    assert block.lower().count("<script") == block.lower().count("</script") == 1
    assert "<!--" not in block


def test_undefined_numbers_are_refused():
    with pytest.raises(ValueError):
        json_text(float("nan"))


def test_packed_comes_back():
    values = np.arange(300).astype(np.uint8)[::2]
    assert zlib.decompress(base64.b64decode(packed(values))) == values.tobytes()
    assert zlib.decompress(base64.b64decode(packed(b"abc"))) == b"abc"


@pytest.mark.parametrize("levels", [254, 50])
def test_steps(levels):
    values = np.array([0, 0.5, 1, -3, 7, np.nan, np.inf, -np.inf], dtype=np.float32)
    half = round(levels / 2)
    assert quantized(values, levels=levels).tolist() == [0, half, levels, 0, levels, 255, levels, 0]
    shifted = quantized(values * 4 - 2, low=-2, high=2, levels=levels)
    assert shifted.tolist() == [0, half, levels, 0, levels, 255, levels, 0]
    many = np.linspace(0, 1, 1001)
    assert np.abs(quantized(many, levels=levels) / levels - many).max() <= 0.5 / levels + 1e-6


def test_policy_lets_in_these_only():
    words = policy(["run()"], ["p{}"])
    assert words.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in words
    assert policy(["run() "], ["p{}"]) != words
