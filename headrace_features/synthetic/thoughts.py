r"""Thoughts and marks of chat templates in the text of an answer, as servers give them that do not parse their model.

    <think>hm</think>It is 4.                                        a pair at the start: thought and text
    hm</think>It is 4.                                               the template opened it, or lost it
    <|channel|>analysis<|message|>hm<|end|><|start|>..final<|message|>It is 4.     channels (harmony)
    It is 4.<|im_end|>                                               a mark of the end, which is no text
    It is 4.<|im_end|>\n<|im_start|>user ..                           went on as somebody else: not parsed
    It is <think>hm</think> 4.                                       a thought in the midst: not parsed
    Here is my thought process: hm Here is my response: It is 4.     words in place of marks (Granite)
    Write `</think>`, or </think> in a sentence                      a text about such marks stays as it is

A mark stands at the start of a line, on the end of a word or behind a sentence, as templates and models write it; one
that is quoted, in code or in the midst of a sentence is a mention. What may be either is not parsed, so it never lands.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

_NAMES: Final = r"(?:\w+:)?(?:think|thinking|thoughts?|reasoning|reflection|scratchpad)"
_PAIRS: Final = (
    (rf"<(?P<name>{_NAMES})(?:[ ][^<>\n]*)?>", r"</(?:NAME)[ ]?>"),
    (r"\[(?P<name>THINK)\]", r"\[/(?:NAME)\]"),
    (rf"◁(?P<name>{_NAMES})▷", r"◁/(?:NAME)▷"),
    (r"<\|(?:begin|start)_?(?:of_)?(?P<name>think\w*|thought|reasoning)\|>", r"<\|end_?(?:of_)?(?:NAME)\|>"),
    (r"<\|channel>thought\b", r"<channel\|>"),
    (r"<unused94>thought\b", r"<unused95>"),
)
_QUOTES: Final = "`\"'“”‘’«»„"
_NOT_QUOTED: Final = rf"(?<![{_QUOTES}])(?:{{}})(?![{_QUOTES}])"
_STARTS: Final = tuple((re.compile(rf"\s*{start}", re.IGNORECASE), end) for start, end in _PAIRS)
_CLOSING: Final = "|".join(end.replace("NAME", _NAMES if "◁" in end or end[0] == "<" else "THINK") for _, end in _PAIRS)
_CONTROL: Final = (
    r"<\|[^|<>\s]{1,40}\|?>|<[^|<>\s]{1,20}\|>|<｜[^｜<>\n]{1,40}｜>"
    r"|<(?:start|end)_of_(?:turn|utterance)>|<(?:bos|eos|pad|unk)>|\[(?:EOS|PAD|UNK)\]"
)
# Calls of tools as models write them: Hermes, Qwen, MiniMax, Seed, xAI, Llama, Nemotron, Mistral, Claude.
_CALLS: Final = (
    r"</?(?:\w+[:_])?(?:tool|function)_?calls?>|<function=[\w.-]+>|<invoke[ ]name=[^<>\n]{1,80}>|\[TOOL_CALLS\]"
)
_END: Final = re.compile(rf"(?:{_CONTROL}|</s>)\Z")
_CLOSER: Final = re.compile(_CLOSING, re.IGNORECASE)
_OPENER: Final = re.compile("|".join(re.sub("[?]P<name>", "?:", start) for start, _ in _PAIRS), re.IGNORECASE)
_MARK: Final = re.compile(
    rf"{_OPENER.pattern}|{_CLOSING}|{_CONTROL}"
    rf"|</s>|{_CALLS}|\[/?INST\]",
    re.IGNORECASE,
)
_ANSWER: Final = re.compile(
    r"\s*(?:<(?P<name>answer|response)>(.*)</(?P=name)>|<\|begin_of_solution\|>(.*)<\|end_of_solution\|>"
    r"|<\|START_(?P<kind>RESPONSE|TEXT)\|>(.*)<\|END_(?P=kind)\|>)\s*\Z",
    re.DOTALL,
)
_FENCE: Final = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)", re.DOTALL)
_TICKS: Final = re.compile(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)")
_FILLER: Final = "\ufffc"  # stands for each character of code
_WORDLESS_PAIR: Final = re.compile(rf"(?<=\S[ \t])<({_NAMES})>[^\w\n<]*</\1>", re.IGNORECASE)
_BLANK_LINE: Final = re.compile(r"[ \t\r]*(?:\n|\Z)")
_SEEN: Final = 200  # characters of a line before a mark that are looked at
_LONGEST: Final = 60  # characters of a mark
_MOST_THOUGHTS, _MOST_ENDS = 100, 8  # that stand one behind the other
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+>|#•]+|\d+[.)])[ \t]*")
_HARMONY: Final = re.compile(
    r"\s*(?:<\|start\|>(?P<role>[^<]*))?<\|channel\|>(?P<channel>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<text>.*?)(?:<\|(?:end|return)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_HARMONY_FINAL: Final = re.compile(r"<\|end\|>\s*<\|start\|>assistant\s*<\|channel\|>final")
_IN_WORDS: Final = re.compile(
    r"\s*Here(?:'s|’s| is) my thought process:(?P<thought>.*?)(?:Here(?:'s|’s| is) my response:(?P<text>.*)|\Z)",
    re.DOTALL,
)
_BARE_HARMONY: Final = re.compile(
    r"\s*analysis(?:(?P<thought>.*?)assistantfinal(?P<text>.*)|(?=[A-Z\"*]).*)\Z", re.DOTALL
)


class Parted(NamedTuple):
    """The content of an answer in its parts.

    Attributes:
        text: without thought and marks of the end.
        reasoning: what the model thought aloud.
        mark: one showing that the server did not parse the answer; such a text is not to be used. Empty for none.
    """

    text: str
    reasoning: str = ""
    mark: str = ""


def parted(content: str) -> Parted:
    """The thought in an answer, and the text without it."""
    content = content.removeprefix("\ufeff")
    if _is_json(content):
        return Parted(content)
    parts = _channels(content) or _thought_first(content)
    text, mark = _without_end(parts.text)
    masked, has_strikes = _masked(text), "<s>" in text
    left = (mark for mark in _MARK.finditer(masked) if not (has_strikes and mark[0] == "</s>"))
    wrong = (mark[0] for mark in left if _is_mark(masked, mark.start(), mark.end()) is not False)
    return Parted(text, parts.reasoning, parts.mark or mark or next(wrong, ""))


def _is_json(content: str) -> bool:
    """Whether all of a content is a JSON object or array, in whose texts a mark is a word."""
    try:
        return content.lstrip()[:1] in ("{", "[") and json.loads(content) is not None
    except (ValueError, RecursionError):  # no JSON, or too deep
        return False


def _thought_first(content: str) -> Parted:
    """Thoughts in pairs of marks at the start; without any, what stands before a closing mark."""
    thoughts, text = list[str](), content
    while len(thoughts) < _MOST_THOUGHTS:
        pairs = ((match, end) for start, end in _STARTS if (match := start.match(text)) is not None)
        if (pair := next(pairs, None)) is None:
            break
        opening, end = pair
        closing = _NOT_QUOTED.format(end.replace("NAME", re.escape(opening.groupdict().get("name") or "")))
        rest = text[opening.end() :]
        before, text = _split(rest, re.search(closing, rest, re.IGNORECASE))
        thoughts.append(before.strip())
    if not thoughts:
        masked = _masked(text)
        for match in _MARK.finditer(masked):
            is_mark = _is_mark(masked, match.start(), match.end())
            line = masked[masked.rfind("\n", 0, match.start()) + 1 : match.start()][-_SEEN:]
            if is_mark and _CLOSER.fullmatch(match[0]) is not None and _OPENER.search(line) is None:
                before, text = _split(text, match)
                thoughts.append(before.strip())
            if is_mark is not False:
                break
    if thoughts and (answer := _ANSWER.match(text)) is not None:
        text = next(filter(None, answer.group(2, 3, 5)), "")
    return Parted(text, "\n\n".join(filter(None, thoughts)))


def _split(text: str, match: re.Match[str] | None) -> tuple[str, str]:
    """What stands before and behind a mark; all before it where there is none."""
    return (text, "") if match is None else (text[: match.start()], text[match.end() :])


def _channels(content: str) -> Parted | None:
    """Text and thought of an answer in channels, with its marks or without; None where it has none."""
    if (bare := _BARE_HARMONY.match(content) or _IN_WORDS.match(content)) is not None:
        return Parted(bare["text"] or "", (bare["thought"] or bare[0]).strip())
    if _HARMONY.match(content) is None:
        if _HARMONY_FINAL.search(content) is None:
            return None
        content = f"<|channel|>analysis<|message|>{content}"  # the template opened the first
    at, texts, thoughts = 0, list[str](), list[str]()
    while (message := _HARMONY.match(content, at)) is not None:
        channel, role = message["channel"].strip(), (message["role"] or "assistant").strip()
        if role != "assistant" or channel not in ("analysis", "commentary", "final"):
            break  # a tool is called, or somebody else spoken for
        (texts if channel == "final" else thoughts).append(message["text"].strip())
        at = message.end()
    rest = content[at:].strip()
    return Parted("\n\n".join(texts), "\n\n".join(thoughts), rest[:40] or ("<|channel|>" if len(texts) > 1 else ""))


def _without_end(text: str) -> tuple[str, str]:
    """A text without the marks of templates at its end; and the mark that may be a word of it."""
    rest, has_strikes = text.rstrip(), "<s>" in text
    for _ in range(_MOST_ENDS):
        match = _END.search(rest, max(0, len(rest) - _LONGEST))
        if match is None or (has_strikes and match[0] == "</s>"):
            break
        if (is_mark := _is_mark(_masked(rest), match.start(), len(rest))) is None:
            return text, match[0]
        if not is_mark:
            break
        text = rest = rest[: match.start()].rstrip()
    return text, ""


def _masked(text: str) -> str:
    """A text of equal length without code, and without pairs of marks within a line without a word between them.

    A fence with the end of a thought and not its start is no code: the fence began in the thought.
    """
    lines, first, fence = text.splitlines(keepends=True), 0, ""
    for number, line in enumerate(lines):
        fence_match = _FENCE.match(line)
        if fence_match is not None and not fence:
            first, fence = number, fence_match[1]
        elif fence_match is not None and fence_match[1].startswith(fence) and not fence_match[2].strip():
            if not _ends_a_thought("".join(lines[first : number + 1])):
                lines[first : number + 1] = map(_filled, lines[first : number + 1])
            fence = ""
    inline = _TICKS.sub(lambda match: _filled(match[0]), "".join(lines))
    return _WORDLESS_PAIR.sub(lambda match: _filled(match[0]), inline)


def _filled(code: str) -> str:
    """As many characters outside of code, with the ends of its lines."""
    return re.sub(r"[^\n]", _FILLER, code)


def _ends_a_thought(block: str) -> bool:
    """Whether a fenced block has a mark closing a thought, and none before it opening it."""
    for match in _MARK.finditer(block):
        if _is_mark(block, match.start(), match.end()):
            return _CLOSER.fullmatch(match[0]) is not None
    return False


def _is_mark(text: str, start: int, end: int) -> bool | None:
    """Whether what stands there is a mark (True) or is mentioned (False); None where it may be either."""
    line = text[max(text.rfind("\n", 0, start) + 1, start - _SEEN) : start]
    before, after, words = line[-1:], text[end : end + 1], line.rstrip()
    if (before and before in _QUOTES + "([{<=/\\") or (after and after in _QUOTES + ",.;:?!)]}"):
        return False
    if words and _BULLET.fullmatch(line) is not None:
        return False
    if before not in (" ", "\t") or not words or words[-1] in ".!?…。！？)]" + _QUOTES:
        return True
    return None if _BLANK_LINE.match(text, end) is not None else False
