"""Program files made by hand."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Any

from tilewright.isa.program import FORMAT_VERSION, MAGIC


def sealed(manifest: Any, body: bytes) -> bytes:
    """A file with this manifest and these sections, whose sums are right whatever they hold."""
    text = json.dumps(manifest).encode()
    data = MAGIC + struct.pack("<III", FORMAT_VERSION, len(text), zlib.crc32(text)) + text + body
    return data + hashlib.sha256(data).digest()
