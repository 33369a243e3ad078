"""Files of weights, made byte by byte, and how they are refused.

Tests import this; it holds none."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import pytest

import dlbridge

OPENS = (dlbridge.open_safetensors, dlbridge.seal_safetensors)


def header_of(header: str | Mapping[str, object]) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode()


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def refused(path, message="", kind=ValueError):
    """One line that names the file."""
    for opens in OPENS:
        with pytest.raises(kind, match=message) as caught:
            opens(path)
        text = str(caught.value)
        assert str(path) in text
        assert "\n" not in text
