"""``ctx_search`` for hosts that take images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Record
from ctxarchive.session.messages import ImageBlock, TextBlock, ToolCallBlock
from ctxarchive.tools.ctx_search import CtxSearchTool
from ctxarchive.tools.images import CtxSearchWithImages
from ctxarchive.tools.toolbox import run_call

PICTURE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"},
}


def shown(seq: int, text: str, event: dict[str, Any]) -> Record:
    """A record with one picture."""
    return Record(
        session="s",
        seq=seq,
        layer="constraint",
        role="user",
        event=json.dumps(event),
        text=text,
        images=("image/png, 6 bytes",),
    )


def test_a_fetched_record_brings_its_images(tmp_path: Path) -> None:
    """As blocks behind the text; searches, listings and continuations only name them."""
    said = [{"type": "text", "text": "look " * 400}, PICTURE]
    result = {"type": "tool-result", "toolCallId": "c", "content": [PICTURE, PICTURE]}
    with open_archive(tmp_path / "a.db") as knowledge:
        knowledge.put(
            [
                shown(1, "look " * 400, {"type": "user/message", "data": {"content": said}}),
                shown(2, "", {"type": "tool/result", "data": {"message": {"content": [result]}}}),
            ]
        )
        search = CtxSearchTool(knowledge, session="s", max_output_chars=900)
        tool = CtxSearchWithImages(search)
        assert tool.name == search.name
        assert tool.definition == search.definition
        answer = tool.run({"seq": 1})
        assert isinstance(answer, list)
        text, image = answer
        assert isinstance(text, TextBlock)
        assert text.text == search.run({"seq": 1})
        assert ", with image/png, 6 bytes" in text.text
        assert isinstance(image, ImageBlock)
        assert image.wire() == PICTURE
        assert len(tool.run({"seq": 2})) == 3
        calls: list[dict[str, Any]] = [
            {"seq": 1, "offset": 600},
            {"after_seq": -1},
            {"queries": ["look"]},
        ]
        for call in calls:
            assert tool.run(call) == search.run(call)
        made = ToolCallBlock(type="tool-call", id="x", name="ctx_search", arguments='{"seq": 1}')
        outcome = anyio.run(run_call, tool, made)
        assert outcome.content[1] == PICTURE
        assert not outcome.is_error
