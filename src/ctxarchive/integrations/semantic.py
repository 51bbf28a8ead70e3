"""Meaning by static word vectors on this machine (extra ``semantic``): no network, ever.

The weights are those that the package ``wordllama`` ships in its wheel: a vector of 256 numbers for
each of 32,000 word pieces; a text's vector is their mean. That package itself is never imported: it
would set up logging and may download.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ctxarchive.errors import ConfigError
from ctxarchive.knowledge.semantic import Nearness, SemanticModel

WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
TENSOR: Final = "embedding.weight"
INSTALL: Final = "pip install 'ctxarchive[semantic]'"

_BATCH: Final = 256
"""Texts that are cut into word pieces at once."""
_ROWS: Final = 8_192
"""Vectors that are compared at once: 8 MB as floating point numbers."""


class StaticEmbeddings(SemanticModel):
    """The mean of a text's word pieces; vectors are kept as 256 signed bytes.

    Raises:
        ConfigError: when the extra is not installed, or what it ships is not what is expected.
    """

    def __init__(self) -> None:
        try:
            import numpy as np  # noqa: PLC0415 - an extra: absent until it is asked for
            from tokenizers import Tokenizer  # noqa: PLC0415

            self.name = f"wordllama {version('wordllama')} l2_supercat_256 int8"
        except (ImportError, PackageNotFoundError) as error:
            raise ConfigError(f"semantic: {error}; install the extra: {INSTALL}") from error
        folder = _folder()
        self._np = np
        self._weights = _tensor(np, folder / WEIGHTS)
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # the library raises plain exceptions only
            raise ConfigError(f"semantic: {folder / TOKENIZER}: {error}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, texts: Sequence[str]) -> list[bytes]:  # noqa: D102 - the contract says it
        np = self._np
        found: list[bytes] = []
        for start in range(0, len(texts), _BATCH):
            batch = [
                text.encode("utf-8", "replace").decode() for text in texts[start : start + _BATCH]
            ]
            for pieces in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                mean = self._weights[pieces.ids].mean(axis=0) if pieces.ids else self._zero()
                # Only the direction counts: each vector fills the range of a byte.
                scale = 127 / max(float(np.abs(mean).max()), 1e-9)
                found.append(np.rint(mean * scale).astype(np.int8).tobytes())
        return found

    def nearness(self, query: bytes, stored: Sequence[bytes]) -> list[Nearness]:  # noqa: D102
        if not stored:
            return []
        np = self._np
        size = len(query)
        counts = np.array([len(data) // size for data in stored])
        vectors = np.frombuffer(b"".join(stored), dtype=np.int8).reshape(-1, size)
        asked = np.frombuffer(query, dtype=np.int8).astype(np.float32)
        asked /= max(float(np.linalg.norm(asked)), 1.0)
        cosines = np.empty(len(vectors), dtype=np.float32)
        for start in range(0, len(vectors), _ROWS):
            rows = vectors[start : start + _ROWS].astype(np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            cosines[start : start + _ROWS] = rows @ asked / np.maximum(lengths, 1.0)
        first = np.concatenate(([0], np.cumsum(counts)[:-1]))
        best = np.maximum.reduceat(cosines, first)
        return [
            Nearness(float(high), int(np.argmax(cosines[at : at + count])) if count > 1 else 0)
            for high, at, count in zip(best, first, counts, strict=True)
        ]

    def _zero(self) -> Any:
        return self._np.zeros(self._weights.shape[1], dtype=self._np.float32)


@cache
def static_embeddings() -> StaticEmbeddings:
    """The model, loaded once in a process: a quarter of a second, 32 MB.

    Raises:
        ConfigError: as ``StaticEmbeddings`` does.
    """
    return StaticEmbeddings()


def _folder() -> Path:
    """Where the package lies, without importing it."""
    found = find_spec("wordllama")
    if found is None or found.origin is None:
        raise ConfigError(f"semantic: wordllama is not installed; install the extra: {INSTALL}")
    return Path(found.origin).parent


def _tensor(np: Any, path: Path) -> Any:
    """The one tensor of a safetensors file: eight bytes of length, a JSON header, then the numbers."""
    try:
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])[TENSOR]
        first, last = about["data_offsets"]
        numbers = np.frombuffer(data[8 + size + first : 8 + size + last], dtype=np.float16)
        if about["dtype"] != "F16":
            raise ConfigError(f"semantic: {path}: {about['dtype']} numbers where F16 is expected")
        return numbers.reshape(about["shape"]).astype(np.float32)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"semantic: {path}: not the weights that are expected: {error}; install the extra "
            f"anew: {INSTALL}"
        ) from error
