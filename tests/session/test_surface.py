"""The surface against a simple model: a list in which a run is replaced by one entry."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ctxarchive.errors import SessionError
from ctxarchive.session.log import Session
from ctxarchive.session.surface import Surface


def _message(text: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], "source": {"kind": "user"}}


class SurfaceMachine(RuleBasedStateMachine):
    """Any sequence of appends, replacements and refused operations."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session.create("s")
        self.model: list[int] = []
        self.replacements = 0

    def _run(self, one: int, two: int) -> tuple[int, int]:
        first, last = sorted((one % len(self.model), two % len(self.model)))
        return first, last

    @rule(text=st.text(max_size=5))
    def append(self, text: str) -> None:
        """A message enters at the end."""
        event = self.session.append("user/message", _message(text), surface_op="append")
        self.model.append(event.seq)

    @rule()
    def log_only(self) -> None:
        """An event of the log only leaves the surface alone."""
        self.session.append("turn/start", {"turn": 1})

    @precondition(lambda self: self.model)
    @rule(one=st.integers(0, 99), two=st.integers(0, 99), older=st.booleans())
    def replace(self, one: int, two: int, older: bool) -> None:  # noqa: FBT001 — drawn
        """A run of entries gives way to one."""
        first, last = self._run(one, two)
        names = ("start", "end") if older else ("startSeq", "endSeq")
        operation = {"op": "replace", names[0]: self.model[first], names[1]: self.model[last]}
        event = self.session.append(
            "user/message",
            _message("replaced"),
            surface_op=operation,
            source_event_seqs=self.model[first : last + 1],
        )
        self.model[first : last + 1] = [event.seq]
        self.replacements += 1

    @precondition(lambda self: len(self.model) > 1)
    @rule(one=st.integers(0, 99), two=st.integers(0, 99))
    def replace_backwards(self, one: int, two: int) -> None:
        """A run whose end stands before its start is refused."""
        first, last = self._run(one, two)
        if first != last:
            self._refused(self.model[last], self.model[first], self.model)

    @precondition(lambda self: self.model)
    @rule(one=st.integers(0, 99))
    def replace_absent(self, one: int) -> None:
        """A seq that is not on the surface cannot bound a run, be it shadowed or yet to come."""
        there = self.model[one % len(self.model)]
        shadowed = sorted(set(range(len(self.session))) - set(self.model))
        for absent in [*shadowed[-1:], len(self.session), -1]:
            self._refused(there, absent, self.model)
            self._refused(absent, there, self.model)

    @precondition(lambda self: self.model)
    @rule(one=st.integers(0, 99), two=st.integers(0, 99), left_out=st.integers(0, 99))
    def replace_without_citing(self, one: int, two: int, left_out: int) -> None:
        """A replacement that does not cite everything it shadows is refused."""
        first, last = self._run(one, two)
        cited = self.model[first : last + 1]
        del cited[left_out % len(cited)]
        self._refused(self.model[first], self.model[last], cited)

    def _refused(self, start: int, end: int, cited: list[int]) -> None:
        before = len(self.session)
        with pytest.raises(SessionError) as caught:
            self.session.append(
                "user/message",
                _message("refused"),
                surface_op={"op": "replace", "startSeq": start, "endSeq": end},
                source_event_seqs=cited,
            )
        assert caught.value.code == "surface"
        assert len(self.session) == before

    @invariant()
    def surface_equals_the_model(self) -> None:
        """Order, positions, membership, spans and the generation all agree with the list."""
        surface = self.session.surface
        assert surface.nodes == tuple(self.model)
        assert len(surface) == len(self.model)
        assert [surface.position(seq) for seq in self.model] == list(range(len(self.model)))
        assert [surface[place] for place in range(len(self.model))] == self.model
        assert all((seq in surface) == (seq in self.model) for seq in range(len(self.session) + 1))
        assert surface.replace_generation == self.replacements
        assert surface.since(len(self.model) // 2) == self.model[len(self.model) // 2 :]
        if self.model:
            assert surface.span(self.model[0], self.model[-1]) == tuple(self.model)

    @invariant()
    def the_view_follows_the_surface(self) -> None:
        """The model sees one message an entry, in surface order."""
        seen = [self.session.event_at(seq).message for seq in self.model]
        assert self.session.derive_messages() == seen


TestSurfaceMachine = SurfaceMachine.TestCase


def test_a_replacement_returns_what_it_shadows() -> None:
    """Replace answers with the shadowed seqs in surface order, which need not ascend."""
    surface = Surface()
    for seq in range(4):
        surface.append(seq)
    assert surface.replace(1, 2, 4) == (1, 2)
    assert surface.replace(4, 3, 5) == (4, 3)
    assert surface.nodes == (0, 5)


def test_a_span_out_of_order_names_both_ends() -> None:
    """The refusal says which seq stands after which."""
    surface = Surface()
    surface.append(7)
    surface.append(3)
    with pytest.raises(SessionError, match="seq 3 stands after seq 7 on the surface"):
        surface.span(3, 7)
