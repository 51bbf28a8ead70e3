"""Whether an assistant message states a finding or only narrates what it is about to do.

Pure text in, one boolean out; it knows neither events nor records. A message is read sentence by
sentence: what announces, plans, asks, thanks or reports a bare status is set aside, and what is
left counts when it holds something concrete or concludes something. It may not call a model, and
every expression runs in linear time: no repetition contains another one over the same characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_READ_CHARS = 10_000
"""Code points read: so much prose without a finding has none, and the bound holds the time."""

_SENTENCE_CHARS = 500
"""Code points of one sentence that the expressions see."""

_ENOUGH_PROSE = 160
"""Code points of prose that neither announces nor asks, beyond which a message has said something
even when no single sentence holds a concrete token."""

_BLOCK_LINES = 3
"""Lines from which a fenced block is content that only the message holds, so a finding."""

_FENCE = re.compile(r"^[ \t]{0,8}(?:```|~~~)")
_ITEM = re.compile(r"[ \t]{0,40}(?:[-*+•]|\d{1,3}[.)])[ \t]{1,8}")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*\]]{0,3}[ \t]{1,8}|(?<=[。！？])")
_WORD = re.compile(r"\w")
_MARKS = re.compile(r"[\s*_#>|]{0,40}")

# --- What does not count ---------------------------------------------------------------------

_INTERJECTION = re.compile(
    r"(?:good|great|nice|perfect|excellent|ok|okay|alright|right|yes|no|sure|thanks|thank you|done"
    r"|got it|i see|clear|understood|interesting|expected|fixed|ah|oh|hmm|well|actually|wait|also"
    r"|and|but|so|then|next|first|finally|lastly|additionally|meanwhile|however"
    r"|you're (?:absolutely )?right|good (?:question|catch|point|call|idea|news)"
    r"|now(?= i\b)|(?:step|phase|task|part|wp)[ ]?\d{1,3}(?=:)"
    r"|(?:looking at|based on|given) [^,.:]{1,120}(?=,)"
    r"|gut|klar|perfekt|genau|bien|perfecto|claro|vale"
    r"|好的|好|没错|是的|明白了|はい|了解です|了解しました|わかりました|なるほど)"
    r"(?:[ \t]{0,3}[,.!:;—–，、。！：-]{1,3}|(?=[ \t])|$)[ \t]{0,8}",
    re.IGNORECASE,
)

_WILL = (
    r"let me|let's|let us|lemme|i'll|i will|i am going to|i'm going to|i need to|i want to"
    r"|i should|i have to|i must|i'd like to|i can (?:now|help|assist|calculate|proceed|let you)"
    r"|i'm using|i am using|we'll|we need to|we should now|need to|time to|going to"
    r"|ready to|here goes|would you like|do you want|want me to|feel free|please|could you"
    r"|can you|if you (?:need|want|have|can|could|would|'d)|once you|hold on"
    r"|ich werde|ich muss|ich will|ich möchte|lass mich|lassen sie mich|schauen wir|sehen wir"
    r"|als nächstes|zuerst|jetzt (?:werde|muss|will|prüfe|schaue|sehe|lese|füge|führe) ich|bitte"
    r"|voy a|vamos a|déjame|dejame|permíteme|necesito|tengo que|ahora (?:voy|vamos)"
    r"|a continuación|primero|por favor|veamos|quieres que"
)
_ANNOUNCES = re.compile(
    rf"(?:(?:now )?i (?:also|first|still|just|really|now) (?:need|want|have) to|{_WILL})\b",
    re.IGNORECASE,
)
_ANNOUNCES_LATER = re.compile(
    rf"(?:[,;:—–]| -|\bso|\bbut|\band|\bthen|\bnow)[ \t]{{1,4}}(?:now[ \t]{{1,4}})?(?:{_WILL})\b"
    r"|[—–-][ \t]{1,4}now[ \t]{1,4}(?!the\b|it\b|there\b|all\b|we\b|this\b|that\b|they\b)",
    re.IGNORECASE,
)
_ANNOUNCES_CJK = re.compile(
    r"(?:现在|接下来|首先|然后|那么|下面)?[，,]?(?:让我|我来|我将|我会|我要|我需要|我先|我再|我们来|请|您?是否|要不要)"
    r"|(?:现在|接下来|下面)(?:检查|查看|运行|更新|添加|修改|修复|阅读|读取|开始)"
    r"|.{0,200}(?:(?:確認|実行|修正|追加|更新|調査|実装|作成|削除|開始|変更)(?:を)?し(?:ます|ていきます|てみます|ましょう)"
    r"|見てみます|見ていきます|みましょう|してください|必要があります|でしょうか|ますか)[。：:！]?$"
)
_NOW_ACT = re.compile(
    r"(?:now|next|then|jetzt|ahora)[ \t,]{1,4}"
    r"(?!the\b|it\b|its\b|there\b|all\b|we\b|this\b|that\b|these\b|they\b|if\b|when\b|with\b|every|each\b|both\b|you\b"
    r"|only\b|no\b|our\b|your\b|die\b|der\b|das\b|el\b|la\b|los\b|las\b|`|\d)",
    re.IGNORECASE,
)
_ACT = re.compile(
    r"(?:re-?run|run|check|add|update|fix|look|read|create|remove|delete|verify|move|implement"
    r"|write|start|try|find|rename|replace|refactor|extract|ensure|make|double-check|re-?read"
    r"|continue|proceed|checking|running|reading|adding|updating|fixing|starting|searching|waiting"
    r"|to (?:proceed|assist|calculate|determine|continue|help|confirm))\b(?!:)",
    re.IGNORECASE,
)
_PLANS = re.compile(
    r"(?:here's |here is |this is )?(?:the |my |our )?(?:remaining |next )?"
    r"(?:plan|steps|changes needed|changes to make|todos?|to-dos?)\b[^.`]{0,40}:$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\b(?:task|step|phase|part|pr|wp|item)[ #]{0,2}\d{1,4}\b", re.IGNORECASE)
_STATUS_WORD = re.compile(
    r"(?:all|the|both|new|existing|unit|integration|full|remaining|of|my|changes?|everything|it"
    r"|that|this|now|again|also|still|and|is|are|has|have|been|successfully"
    r"|tests?|lint(?:er|ing)?|format(?:ting)?|builds?|compiles?|code|task|todo|work|files?|suite"
    r"|pass(?:es|ed|ing)?|clean(?:ly)?|done|completed?|committed|pushed|green|good|fine|great|ready"
    r"|works|working|succeed(?:s|ed)|finished|fixed|updated|correct|looks?|set|ok|okay)[.!:;*]{0,3}",
    re.IGNORECASE,
)
_UNDERSTOOD = re.compile(
    r"(?:(?:now[ \t]{1,4})?i (?:now )?(?:see|understand|have|can see|know|found)"
    r"|here(?:'s| is| are)|this is|that's|ich sehe|ich verstehe|entiendo|ya veo)"
    r"[ \t]{1,4}(?:it|now|what|why|how|the|a|an|das|el|la|un|everything)?[ \t]{0,4}"
    r"[^.:`\d]{0,60}(?:issues?|problems?|patterns?|pictures?|understanding|summary|structure|code"
    r"|context|codebase|plan|need|happening|problema|muster|analysis|now|of it)[.!:]?$",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"(?:i'm|i am) (?:unable|not able|sorry)|unfortunately,? i (?:can't|cannot)|i apologi[sz]e"
    r"|this is a new task|happy to|glad to",
    re.IGNORECASE,
)
_GUESS = re.compile(
    r"\b(?:might|maybe|perhaps|probably|possibly|may be|seems?|could be|not sure|should|would|will"
    r"|vielleicht|wahrscheinlich|quizás|tal vez|probablemente)\b|可能|也许|大概|かもしれ|おそらく",
    re.IGNORECASE,
)

# --- What counts -----------------------------------------------------------------------------

_VALUE = re.compile(
    r"[$€£¥][ ]?\d|\d[ ]?(?:%|€|ms\b|s\b|sec|min|hours?\b|h\b|days?\b|[kmg]i?b\b|bytes?\b|lines?\b|tokens?\b)"
    r"|\b[0-9a-f]{7,40}\b",
    re.IGNORECASE,
)
_CONCRETE = re.compile(
    r"\d"
    r"|`[^`\n]{2}"
    r"|[\"“][^\"“”\n]{3}"
    r"|(?<![\w/])(?:~|\.{1,2})?/\w"
    r"|\w/\w{1,60}[/.]\w"
    r"|\w\.(?:py|go|rs|ts|js|tsx|jsx|json|jsonl|md|toml|ya?ml|sh|c|h|cpp|java|rb|txt|log|sql|html|css)\b"
    r"|[a-z][a-z0-9]{1,40}[A-Z]\w|[A-Za-z]_[A-Za-z]"
    r"|\b(?:E[A-Z]{4,}|[A-Z][a-z]{2,40}(?:Error|Exception))\b"
)
_CONCLUDES = re.compile(
    r"\b(?:because|since|due to|caused?|root|turns out|the (?:fix|issue|problem|bug|reason) (?:is|was)"
    r"|(?:is|are|was|were|do|does|did|has|have|had|can|could)(?:n't| not)|cannot|never|no longer"
    r"|missing|fail(?:s|ed|ing|ure)?|error|broken|wrong|mismatch|unused|unreachable|stale|exists?"
    r"|there(?:'s| is| are| was| were)|only|already|means|expects?|requires?|returns?|uses?"
    r"|decided|confirmed|found|includes?|contains?|differs?|works? now|working now|successfully|denied"
    r"|two|three|four|several|many|both"
    r"|weil|ursache|grund|fehlt|fehler|fehlgeschlagen|gefunden|existiert|nicht|liegt an|bereits"
    r"|porque|causa|falla|falló|falta|error|encontr[éóa]|existe|debido|resulta)\b"
    r"|原因|因为|由于|发现|失败|错误|缺少|不存在|没有|返回|已经|导致|ため|エラー|失敗|見つか|存在し|ました|不足|ありません",
    re.IGNORECASE,
)


def states_finding(text: str) -> bool:
    """Tell whether an assistant message asserts something learnt or decided.

    Args:
        text: The message's text; any Unicode, of any length. The first 10,000 code points decide.

    Returns:
        True for a finding (a value, a cause, how something is, a decision, a report that names
        what changed), False for narrative (the next action, a plan, a question, a bare status).
    """
    prose = 0
    for sentence, dropped_list in _sentences(text[:_READ_CHARS]):
        if dropped_list:
            if _VALUE.search(sentence):
                return True
            continue
        claim = _claim(sentence)
        if not claim:
            continue
        if _counts(claim):
            return True
        prose += len(claim)
    return prose >= _ENOUGH_PROSE


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each sentence, and whether it is an item of a list that a non-claim introduced."""
    dropping = False
    for line in _unfenced(text):
        if _HEADING.match(line):
            dropping = False
            continue
        item = _ITEM.match(line)
        listed = item is not None or line[0].isspace()
        dropping = dropping and listed
        last = ""
        for part in _SENTENCE_END.split(line[item.end() :] if item else line):
            sentence = part[:_SENTENCE_CHARS].strip()
            if _WORD.search(sentence):
                last = sentence
                yield sentence, dropping
        if item is None and last.rstrip("*_ ").endswith((":", "：")):
            dropping = _announces(_bare(last))


def _unfenced(text: str) -> Iterator[str]:
    """Yield the lines that are not blank; one code span stands for a fenced block."""
    fenced = False
    inside = 0
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            inside = 0
        elif fenced:
            inside += 1
            if inside == _BLOCK_LINES:
                yield "`block`"
        elif line.strip():
            yield line


def _bare(sentence: str) -> str:
    """Return the sentence without marks, interjections and lead-ins before what it says."""
    start = _MARKS.match(sentence)
    rest = sentence[start.end() if start else 0 :]
    for _ in range(3):
        said = _INTERJECTION.match(rest)
        if said is None:
            break
        rest = rest[said.end() :]
    return rest


def _claim(sentence: str) -> str:
    """Return the part of a sentence that claims something; empty when it claims nothing."""
    rest = _bare(sentence)
    if _announces(rest) or _is_status(rest) or _UNDERSTOOD.match(rest) or _REFUSES.match(rest):
        return ""
    later = _ANNOUNCES_LATER.search(rest)
    return rest[: later.start()] if later else rest


def _announces(rest: str) -> bool:
    """Tell whether a bare sentence asks or says what comes next."""
    if rest.rstrip("*_ \")'").endswith(("?", "？")):
        return True
    if _PLANS.match(rest.rstrip("*_ ")):
        return True
    return any(p.match(rest) for p in (_ANNOUNCES, _NOW_ACT, _ACT, _ANNOUNCES_CJK))


def _is_status(rest: str) -> bool:
    words = _NUMBERED.sub("task", rest).replace(",", " ").split()
    return all(_STATUS_WORD.fullmatch(word) for word in words)


def _counts(claim: str) -> bool:
    if _CONCRETE.search(claim):
        return True
    return _CONCLUDES.search(claim) is not None and _GUESS.search(claim) is None
