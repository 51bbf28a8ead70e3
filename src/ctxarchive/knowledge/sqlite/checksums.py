"""One number for all that is stored of a record, so that a change of any byte is seen.

Pure. It is no protection against somebody who means harm: whoever can write the file can write this
number too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from ctxarchive.knowledge.sqlite.connection import Value


def checksum(columns: Iterable[Value]) -> int:
    """A signed 64-bit number of a record's columns, in the order of ``COLUMNS`` after the key.

    The first eight bytes of BLAKE2b over each value's kind, length and bytes. Files hold these
    numbers: another way of making them needs a migration.
    """
    digest = blake2b(digest_size=8)
    for value in columns:
        if isinstance(value, str):
            content = value.encode("utf-8")
            digest.update(b"t%d:" % len(content))
        elif isinstance(value, bytes):
            content = value
            digest.update(b"b%d:" % len(content))
        else:
            content = b"n" if value is None else b"%d;" % int(value)
        digest.update(content)
    return int.from_bytes(digest.digest(), "big", signed=True)
