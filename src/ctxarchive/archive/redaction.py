"""Masks keys and tokens before anything is filed. Pure.

Knows the formats of well-known services, and patterns of the user's own. It may not change a length
or break JSON: it works on decoded strings, which are encoded again. No pattern can take more than
time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, Protocol

from ctxarchive.errors import ConfigError
from ctxarchive.knowledge.masking import masked
from ctxarchive.knowledge.records import Record
from ctxarchive.session.events import Event, parse_event
from ctxarchive.session.jsontext import dump_json

_WORD: Final = "A-Za-z0-9_"
_START: Final = rf"(?:(?<![{_WORD}-])|(?<=\\[nrtbf]))"
"""Where a token may begin: not inside a word; but behind an escape, which looks like one's beginning."""
_BREAK: Final = r"(?:\s|\\[nrt])"
"""White space, or its escape in JSON inside of a string."""


@dataclass(frozen=True, slots=True)
class _Format:
    """One well-known format.

    ``pattern`` matches with possessive repeats of characters that cannot begin the pattern anew, or of
    bounded length: what one attempt has read, at most a bounded part is read again by another.
    """

    name: str
    hints: tuple[str, ...]
    """Lower-case texts one of which a match holds: the pattern is tried only where one stands."""
    pattern: re.Pattern[str]
    """Its group ``secret`` is masked; the whole match where there is none."""


def _format(name: str, hints: str, pattern: str) -> _Format:
    return _Format(name, tuple(hints.split()), re.compile(pattern))


WELL_KNOWN: Final = (
    _format(
        "private key block",
        "private",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?P<secret>(?:[A-Za-z0-9+/=\s:,.]|\\[nrt/]|-(?!----))++(?=-----END)"
        rf"|(?:{_BREAK}*+[A-Za-z0-9+/=]{{16,}}+)++)",
    ),
    _format(
        "AWS access key id",
        "akia asia abia acca agpa aida aroa anpa anva",
        rf"{_START}A(?:KIA|SIA|BIA|CCA|GPA|IDA|ROA|NPA|NVA)[A-Z0-9]{{16}}+(?![A-Za-z0-9])",
    ),
    _format(
        "AWS secret key",
        "aws",
        r"(?i:aws_?(?:secret|session)_?(?:access_?)?(?:key|token))"
        r"[\"'\\]{0,4}\s{0,4}[=:]\s{0,4}[\"'\\]{0,4}(?P<secret>[A-Za-z0-9/+=]{16,4096}+)",
    ),
    _format(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_START}(?:gh[pousr]_[A-Za-z0-9]{{30,255}}+|github_pat_[A-Za-z0-9_]{{22,255}}+)",
    ),
    _format("GitLab token", "glpat-", rf"{_START}glpat-[A-Za-z0-9_.-]{{20,300}}+"),
    _format(
        "Anthropic or OpenAI key",
        "sk-",
        rf"{_START}sk-(?=[{_WORD}-]{{20}})(?=[A-Za-z_-]{{0,64}}+[0-9])[{_WORD}-]{{20,300}}+",
    ),
    _format(
        "Slack token",
        "xox xapp- hooks.slack.com",
        rf"{_START}(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{{10,300}}+|xapp-[A-Za-z0-9-]{{10,300}}+)"
        r"|hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/+_-]{10,300}+)",
    ),
    _format(
        "Google key or token",
        "aiza ya29. gocspx- 1//0",
        rf"{_START}(?:AIza[{_WORD}-]{{35}}+|ya29\.[{_WORD}.-]{{20,2048}}+|GOCSPX-[{_WORD}-]{{20,64}}+"
        rf"|1//0[{_WORD}-]{{30,256}}+)",
    ),
    _format(
        "Stripe key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        rf"{_START}(?:[sr]k_(?:live|test)_[A-Za-z0-9]{{10,255}}+|whsec_[A-Za-z0-9+/=]{{20,255}}+)",
    ),
    _format(
        "token of a package registry or model hub",
        "npm_ pypi- hf_",
        rf"{_START}(?:npm_[A-Za-z0-9]{{36}}+|pypi-AgE[{_WORD}-]{{40,1024}}+|hf_[A-Za-z0-9]{{30,64}}+)",
    ),
    _format(
        "JSON web token",
        "eyj",
        rf"{_START}eyJ[{_WORD}-]{{8,}}+\.[{_WORD}-]{{8,}}+(?:\.[{_WORD}-]*+){{1,3}}+",
    ),
    _format(
        "authorization header",
        "authorization x-api-key api-key bearer",
        r"(?i:(?:authorization|x-api-key|api-key)[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"
        r"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s{1,4})?"
        r"|\bbearer\s{1,4}(?=[\w.~+/=-]{0,64}+[0-9]))"
        r"(?P<secret>[^\s\"'\\,;<>(){}$]{8,4096}+)",
    ),
    _format(
        "password in a URL",
        "://",
        r"://[^\s:/@\"'\\<>]{0,256}+:(?P<secret>[^\s/@\"'\\<>{}$]{1,512}+)@",
    ),
    _format(
        "password in a connection string",
        "password= pwd= accountkey= sharedaccesskey=",
        r"(?i:password|pwd|accountkey|sharedaccesskey)=(?P<secret>[^\s;&\"'\\<>(){}\[\]$]{4,512}+)",
    ),
)
"""What ``redact = true`` masks."""


class Pattern(Protocol):
    """What finds what is to be masked, as ``re.Pattern`` does."""

    def finditer(self, text: str, /) -> Iterator[Any]:
        """Matches that do not overlap."""


class Redactor:
    """Masks what some formats match.

    Args:
        well_known: whether formats of well-known services are masked.
        own: further patterns in the syntax of RE2, which are masked whole, or in their group
            ``secret``.

    Raises:
        ConfigError: for a pattern of one's own that cannot be read, or where RE2 is not installed.
    """

    def __init__(self, *, well_known: bool = True, own: Sequence[str] = ()) -> None:
        self._formats = WELL_KNOWN if well_known else ()
        self._own = tuple(_compiled(pattern) for pattern in own)

    def text(self, text: str) -> str:
        """``text``, of the same length, with what matches masked."""
        for pattern in self._patterns(text):
            text = _masked(pattern, text)
        return text

    def json(self, text: str) -> str:
        """A JSON text with what matches masked in its strings; as it is, where nothing does.

        What is no JSON is masked as any text.
        """
        if not self._own and not any(self._hinted(text)):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        clean = self._value(value)
        return text if clean == value else dump_json(clean)

    def event(self, event: Event) -> Event:
        """An event with what matches masked in its JSON's strings; itself, where nothing does."""
        clean = self.json(event.json_text)
        return event if clean == event.json_text else parse_event(json.loads(clean))

    def record(self, record: Record) -> Record:
        """A record with what matches masked in its text and its head."""
        return replace(record, text=self.text(record.text), head=self.text(record.head))

    def _patterns(self, text: str) -> Iterator[Pattern]:
        yield from (each.pattern for each in self._hinted(text))
        yield from self._own

    def _hinted(self, text: str) -> Iterator[_Format]:
        lower = text.lower()
        return (each for each in self._formats if any(hint in lower for hint in each.hints))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {name: self._value(each) for name, each in value.items()}
        return value


def _masked(pattern: Pattern, text: str) -> str:
    parts: list[str] = []
    at = 0
    for match in pattern.finditer(text):
        # By its number: RE2 knows no spans by name.
        named = "secret" if match.groupdict().get("secret") else ""
        start, end = match.span(match.re.groupindex.get(named, 0))
        parts += (text[at:start], masked(text[start:end]))
        at = end
    return "".join([*parts, text[at:]]) if parts else text


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Linear:
    """A pattern of RE2, which takes time in proportion to the text. It knows no lone surrogates."""

    compiled: Any

    def finditer(self, text: str, /) -> Iterator[Any]:
        found: Iterator[Any] = self.compiled.finditer(_SURROGATE.sub("\ufffd", text))
        return found


def _compiled(pattern: str) -> Pattern:
    try:
        re2: Any = import_module("re2")  # an extra, and only for patterns of one's own
    except ImportError:
        raise ConfigError(
            f"redact_patterns: {pattern!r} needs the extra: pip install 'ctxarchive[redact]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ConfigError(f"redact_patterns: {pattern!r}: {told}") from None
    if compiled.search("") is not None:
        raise ConfigError(
            f"redact_patterns: {pattern!r} matches the empty text; name what it masks"
        )
    return _Linear(compiled)
