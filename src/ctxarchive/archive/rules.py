"""How much of a standing rule a user's message is, and which of its sentences are rule-like. Pure.

What a user said to hold from then on must outlive what they said in passing. This reads the words
alone, in nine languages; it decides the order in which messages give way, and what stays of a long
one, never whether something is archived. Only text of real user messages is to be asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

RULE_LIKE = 0.5
"""The least score of a sentence that is a rule, a restriction or a correction."""

LONGEST = 500
"""Code points of the longest sentence that is taken for a rule; of longer ones that is unlikely."""

_SHORTEST = 2
"""Code points of the shortest sentence that says anything."""

READ_AT_MOST = 20_000
"""Code points read at each end of a text; what lies between is a paste, and scores nothing."""

_STANDS, _DEMANDS, _RESTRICTS, _ASIDE, _CONCRETE, _BONUS = 0.95, 0.8, 0.6, 0.3, 0.3, 0.05


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_STANDING = _words(
    "always never forever whenever henceforth"
    " immer nie niemals stets grundsätzlich künftig fortan"
    " siempre nunca jamás"
    " toujours jamais désormais dorénavant"
    " sempre jamais doravante"
    " всегда никогда отныне впредь"
)
_STANDING_PHRASES = (
    *("from now on", "at all times", "every time", "in future", "in the future"),
    *("under no circumstances", "no matter what", "for the rest of", "going forward"),
    *("ab jetzt", "ab sofort", "von nun an", "in zukunft", "auf keinen fall", "jedes mal"),
    *("a partir de ahora", "de ahora en adelante", "en ningún caso", "cada vez que"),
    *("à partir de maintenant", "à l'avenir", "en aucun cas", "chaque fois"),
    *("a partir de agora", "de agora em diante", "em hipótese alguma", "em nenhum caso"),
    *("с этого момента", "ни в коем случае", "каждый раз"),
)
_STANDING_SIGNS = re.compile(
    "始终|总是|總是|永远|永遠|一律|从现在|從現在|以后都|今后|今後|每次|务必|務必|一直"
    "|常に|必ず|絶対|これから|毎回|決して|一切|いつも"
    "|항상|절대|반드시|앞으로|언제나|매번"
)
_DEMANDING = _words(
    "must mustn't shall required forbidden mandatory prohibited disallowed ensure avoid refrain"
    " muss musst müssen müsst darf darfst dürfen verboten pflicht vermeide"
    " debe debes deben deberá deberás prohibido obligatorio evita evite"
    " doit doivent devez interdit obligatoire évite évitez"
    " deve devem proibido obrigatório"
    " должен должна должно должны нельзя запрещено обязательно избегай"
)
_DEMANDING_PHRASES = (
    *(
        "not allowed",
        "make sure",
        "be sure to",
        "no longer",
        "need to be",
        "i don't want",
        "i want you",
    ),
    *("stelle sicher", "nicht mehr", "achte darauf"),
    *("asegúrate", "ten cuidado", "no está permitido"),
    *("assure-toi", "assurez-vous", "il faut", "il ne faut", "ne pas"),
    *("certifique-se", "não use", "não faça", "não deve"),
    *("не надо", "не нужно", "не используй", "не трогай", "убедись"),
)
_DEMANDING_SIGNS = re.compile(
    "不要|不能|不准|不得|不可|不许|不許|不再|禁止|必须|必須|千万|千萬|请勿|請勿|严禁|切勿"
    "|(?<![特分区個个级类性辨识离])别(?![的人处名称墅])"
    "|いけない|いけません|ならない|なりません|ないで|べき|しないこと|ください"
    "|지 마|지마|지 말|금지|해야|안 돼|안돼|안 됩|마세요"
)
_RESTRICTING = _words(
    "instead only solely exclusively prefer unless except until exactly should shouldn't cannot"
    " minimum maximum"
    " nur statt stattdessen anstatt sondern außer mindestens höchstens kein keine keinen nein"
    " sollst sollte"
    " solo sólo solamente únicamente sino excepto mejor salvo"
    " seulement uniquement plutôt sauf"
    " somente apenas exceto não"
    " только вместо кроме лишь"
)
_RESTRICTING_PHRASES = (
    *("rather than", "at least", "at most", "no more than", "up to", "by default", "not the"),
    *("en lugar de", "en vez de", "al menos", "como máximo"),
    *("au lieu de", "au moins", "au plus", "n'utilise"),
    *("em vez de", "ao invés de", "pelo menos", "no máximo"),
    *("не менее", "не более", "по умолчанию"),
)
_RESTRICTING_SIGNS = re.compile(
    "只能|只用|只要|只在|只改|只许|只允许|仅|僅|而不是|改用|改为|除非|除了|至少|最多|不是|不对|不對|代替"
    "|だけ|のみ|代わりに|ではなく|じゃなく|以外|以上|以下|違う|いいえ"
    "|대신|오직|만 사용|이상|이하|제외|아니"
)
_FIRST_WORDS = _words(
    "no not use keep leave remember note stop follow respect stick wrong"
    " verwende benutze nimm lass nicht usa use mantén deja utilise garde laisse"
    " mantenha deixe используй оставь нет"
)
"""First words of an instruction or of a correction."""

_NEGATED = _words("don't dont never always")
_TELLING = _words(
    "i i've i'd it it's he she they that which who there has have had was were is are"
    " users tests people"
)
"""Words before ``always`` or ``don't`` that make it a statement instead of an instruction."""

_END = re.compile(
    r"\n+|(?<=[.!?;])(?<!e\.g\.)(?<!i\.e\.)(?<!z\.B\.)[\"')\]*]{0,3}[ \t]+|(?<=[。！？；])(?![。！？；])"
)
_WORD = re.compile(r"\w+(?:'\w+)?")
_VALUE = re.compile(r"\d|[`\"«“「]|\w[_/.]\w|[a-z][A-Z]")
_ITEM = re.compile(r"[ \t]{0,20}(?:[-*+•·]|\d{1,3}[.)、])")
_QUESTION = ("?", "？", "吗", "嗎")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence, or a line, of a message."""

    start: int
    """Where it begins in the message, in code points."""
    end: int
    score: float
    """How much it looks like a rule: from 0.95 one that is to hold from now on ("always", "never"),
    from 0.8 a demand or a ban, from 0.6 a restriction or a correction, about 0.3 one that only
    states a number or a name, 0 neither. A question has half."""


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a message that are read, in order; white space around them is left out.

    The items of a list have at least the score of the line that introduces it.
    """
    introduced = 0.0
    fenced = False
    for start, end in _bounds(text):
        said = text[start:end]
        if said.startswith(("```", "~~~")):
            fenced = not fenced
            continue
        score = 0.0 if fenced else _score(said)
        if introduced and _ITEM.match(said):
            score = max(score, introduced)
        else:
            introduced = score if said.endswith((":", "：")) and score >= RULE_LIKE else 0.0
        yield Sentence(start=start, end=end, score=score)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A message read once."""

    worth: float
    """How much it should be kept in view as a rule, from 0 to 1.

    The score of its most rule-like sentence, less where rules are a small part of the message: 1
    for nothing but a standing rule, half as much where rules are a sixteenth of it. 0 where it
    states nothing that could be one."""
    rules: tuple[Sentence, ...]
    """Its sentences that are rule-like and short enough to be kept whole, in order."""


def read(text: str) -> Reading:
    """What a message is worth as a rule, and its rule-like sentences."""
    best = 0.0
    length = ruling = 0
    rules: list[Sentence] = []
    for sentence in sentences(text):
        size = sentence.end - sentence.start
        length += size
        best = max(best, sentence.score)
        if sentence.score >= RULE_LIKE:
            ruling += min(size, LONGEST)
            if size <= LONGEST:
                rules.append(sentence)
    if ruling:
        # What was not read between the ends is no rule.
        share = ruling / (length + max(0, len(text) - 2 * READ_AT_MOST))
        best = float(best * share**0.25)
    return Reading(worth=best, rules=tuple(rules))


def rule_sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of a message that are rule-like and short enough to be kept whole, in order."""
    return read(text).rules


def worth(text: str) -> float:
    """How much a message should be kept in view as a rule, from 0 to 1; see ``Reading.worth``."""
    return read(text).worth


def _bounds(text: str) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end, in the two ends that are read."""
    if len(text) <= 2 * READ_AT_MOST:
        yield from _bounds_within(text, 0, len(text))
    else:
        yield from _bounds_within(text, 0, READ_AT_MOST)
        yield from _bounds_within(text, len(text) - READ_AT_MOST, len(text))


def _bounds_within(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    place = first
    for found in _END.finditer(text, first, last):
        yield from _stripped(text, place, found.end())
        place = found.end()
    yield from _stripped(text, place, last)


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    said = text[start:end]
    left = len(said) - len(said.lstrip())
    right = len(said.rstrip())
    if right > left:
        yield start + left, start + right


def _score(said: str) -> float:
    if len(said) < _SHORTEST:
        return 0.0
    lowered = said[:LONGEST].lower().replace("’", "'")
    words = _WORD.findall(lowered)
    score = _tier(lowered, words)
    if _VALUE.search(said, 0, LONGEST):
        score = min(1.0, score + _BONUS) if score else _CONCRETE
    if said.endswith(_QUESTION):
        score /= 2
    # One too long to be a rule may still hold one.
    return score if len(said) <= LONGEST else score * LONGEST / len(said)


def _tier(lowered: str, words: list[str]) -> float:
    found = frozenset(words)
    told = not found.isdisjoint(_NEGATED) and _is_told(words)
    several = len(words) > 1
    if found & _STANDING or (several and any(map(lowered.__contains__, _STANDING_PHRASES))):
        return _ASIDE if told else _STANDS
    if found & _DEMANDING or (several and any(map(lowered.__contains__, _DEMANDING_PHRASES))):
        return _DEMANDS
    if "don't" in found or "dont" in found or "do not" in lowered:
        return _ASIDE if told else _DEMANDS
    if not lowered.isascii():
        if _STANDING_SIGNS.search(lowered):
            return _STANDS
        if _DEMANDING_SIGNS.search(lowered):
            return _DEMANDS
        if _RESTRICTING_SIGNS.search(lowered):
            return _RESTRICTS
    if found & _RESTRICTING or (several and any(map(lowered.__contains__, _RESTRICTING_PHRASES))):
        return _RESTRICTS
    return _RESTRICTS if words and words[0] in _FIRST_WORDS else 0.0


def _is_told(words: list[str]) -> bool:
    """Whether each ``always``, ``never`` or ``don't`` has a subject before it: no instruction."""
    return all(
        place > 0 and words[place - 1] in _TELLING
        for place, word in enumerate(words)
        if word in _NEGATED
    )
