"""What was done to the world: told by somebody who did it, or by a tool call and its result.

A call that only looks (read, list, search) is no effect. One without a result is open: whether it happened is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from onefold.compaction.intentions import done_key
from onefold.compaction.subjects import Made, Sentence, word_set
from onefold.compaction.values import bare
from onefold.messages.exact import decode_or_text
from onefold.messages.said import Call, Result
from onefold.model import Fact, Json

_VERBS = (
    r"(?:committed|issued|pushed|deployed|deleted|removed|created|wrote|written|sent|e-?mailed|merged|published|"
    r"updated|"
    r"installed|renamed|moved|"
    r"refunded|booked|cancelled|canceled|uploaded|dropped|restarted|opened|closed|tagged|released|scheduled|added|"
    r"fixed|implemented|"
    r"migrated|applied|reverted|rolled back|rolled out|posted|notified|paid|ordered|shipped|submitted|transferred|"
    r"disabled|enabled|archived|"
    r"revoked|rotated|replaced|changed|charged|registered|generated|saved|truncated|overwrote|overwritten|force-pushed|"
    r"rebased|terminated|"
    r"purged|reset|patched|upgraded|downgraded|provisioned|invited|assigned|escalated|ran|executed)"
)
_TOLD = re.compile(
    rf"\b(?:i|we)(?:'ve| have|'d)?(?: (?:just|already|now|also|successfully|then|finally|only|first))* {_VERBS}\b"
    r"|\b(?:has|have|was|were|is|are)(?: (?:now|just|already|also|successfully))*(?: been)?(?: (?:now|just|already|"
    rf"successfully))* {_VERBS}\b"
    rf"|^\W{{0,6}}(?:done[:,.!]? |successfully |just |also |and |then |ok, |okay, |now )*{_VERBS} (?!by\b|in order|"
    r"if\b|when\b)\S"
)
_UNTOLD = re.compile(
    r"\b(?:if|when|once|should|would|could|can|will|might|may|until|unless|before|after|whether|need|needs|must|to be|"
    r"not|never|n't|how|why|"
    r"whenever|because|where|which|that|who)\b[^,;]{0,80}$"
)


_VERB = word_set(_VERBS.strip("(?:)").replace("rolled back|rolled out", "rolled").replace("|", " ")) | {
    "e-mailed",
    "emailed",
}
_TOO_LONG = 600


def effect(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if len(text) > _TOO_LONG or said.words.isdisjoint(_VERB):
        return []
    told = _TOLD.search(low)
    if told is None or _UNTOLD.search(low[: told.start()]) or "n't" in told[0] or " not " in told[0]:
        return []
    return [Made("effect", done_key(text), text)]


_LOOKS = re.compile(
    r"^(?:(?:run_|execute_)?(?:unit_)?(?:tests?|checks?|linters?|benchmarks?|query|quer(?:y|ies)|search)|read|get|"
    r"list|search|fetch|grep|glob|find|view|show|query|look|lookup|describe|check|count|ls|cat|head|open|"
    r"browse|navigate|web|"
    r"think|todo|plan|ask|status|preview|inspect|screenshot|wait|explain|analy[sz]e|summari[sz]e|calculate|convert|"
    r"validate|lint)(?=[_\W]|$)"
)
_ACTS = re.compile(
    r"(?:^|_)(?:write|edit|create|update|delete|remove|send|post|put|patch|insert|replace|move|rename|copy|commit|push|"
    r"merge|deploy|publish|"
    r"release|book|cancel|refund|pay|charge|transfer|order|buy|sell|submit|upload|schedule|reschedule|install|restart|"
    r"start|stop|kill|apply|"
    r"set|add|assign|close|archive|revoke|rotate|invite|grant|reset|approve|reject|reply|email|notify|escalate|issue|"
    r"save|append|drop|"
    r"truncate|migrate|tag|enable|disable|register|terminate|rollback|run|execute|str)(?=_|$)"
)
_SHELL = re.compile(
    r"(?:^|_)(?:bash|shell|terminal|command|exec|execute|run|sh|powershell|local)(?:_|$)|^execute$|^run_command"
)
_SHELL_ACTS = re.compile(
    r"(?:^|[;&|(\n]\s*|\bsudo\s+)(?:git\s+(?:-\S+\s+\S+\s+)?(?:commit|push|merge|rebase|tag|reset|revert|cherry-pick|"
    r"branch\s+-[dDmM]|checkout\s+-b|"
    r"switch\s+-c|rm|mv|am|stash|clone|init)|rm|mv|cp|mkdir|touch|ln|chmod|chown|dd|truncate|tee|kubectl\s+(?:apply|"
    r"delete|rollout|scale|"
    r"create|patch|set)|helm\s+(?:install|upgrade|uninstall|rollback)|terraform\s+(?:apply|destroy|import)|"
    r"docker\s+(?:push|rm|rmi|build|run|"
    r"stop|compose\s+(?:up|down))|npm\s+(?:publish|install|i|uninstall|version)|yarn\s+(?:add|remove|publish)|"
    r"pnpm\s+(?:add|remove|publish)|"
    r"pip\s+(?:install|uninstall)|uv\s+(?:add|remove|publish|pip)|cargo\s+(?:publish|add|install)|"
    r"apt(?:-get)?\s+(?:install|remove|purge)|"
    r"brew\s+(?:install|uninstall)|gh\s+(?:pr|issue|release|repo)\s+(?:create|merge|close|edit|delete|comment)|"
    r"systemctl\s+(?:start|stop|"
    r"restart|enable|disable)|kill|pkill|alembic\s+(?:upgrade|downgrade)|aws\s+\S+\s+(?:cp|rm|sync|create|delete|put|"
    r"update|terminate)\S*|"
    r"gcloud\s+\S+\s+(?:create|delete|deploy|update)|fly\s+deploy|vercel|heroku\s+\S+|make\s+(?:deploy|release|publish|"
    r"install|migrate)|"
    r"scp|rsync|sed\s+-i|patch)\b"
    r"|>>?\s?[\w./~-]{2,}|\bcurl\b[^\n]{0,200}(?:-X\s?|--request[ =])(?:POST|PUT|PATCH|DELETE)|\b(?:INSERT\s+INTO|"
    r"UPDATE\s+\S+\s+SET|DELETE\s+FROM|"
    r"DROP\s+TABLE|ALTER\s+TABLE|CREATE\s+TABLE|TRUNCATE)\b|\bmanage\.py\s+migrate\b|\bdeploy\b"
)
_NOWHERE = re.compile(r"\d?>>?\s?(?:/dev/null|&\d)")
_FAILED = re.compile(
    r"^\W*(?:error|traceback|fatal|failed|failure|exception|permission denied|command not found|rejected|denied|not "
    r"found|invalid|usage:|"
    r"\(no result|exit (?:code|status):? [1-9]|\{\"(?:error|ok\":\s?false|success\":\s?false))|\b(?:exit(?:ed)?(?: "
    r"with)?(?: code| status)|exit_code\"?):?\s?[1-9]",
    re.IGNORECASE,
)
_LONG = (
    "content",
    "contents",
    "new_string",
    "old_string",
    "new_str",
    "old_str",
    "file_text",
    "text",
    "body",
    "patch",
    "data",
    "html",
    "code",
)
_FIRST = ("command", "cmd", "path", "file_path", "filename", "file", "to", "id", "name", "title", "subject")


_SPEAKS = re.compile(
    r"\b(?:ignore|disregard|assistants?|agents?|ai|instructions?|must|never|always|you|your|system:|rules?|important|"
    r"prefers?|reminder|from now on|do not|don't|please)\b|<!--"
)
"""Words by which a tool's output speaks to its reader: of such a line the names are shown, and no word."""


@dataclass
class Effects:
    """The calls of some messages, and what became of them."""

    _calls: dict[str, tuple[Call, int]] = field(default_factory=dict)
    _results: dict[str, tuple[Result, int]] = field(default_factory=dict)

    def called(self, call: Call, source: int) -> None:
        self._calls[call.id] = call, source

    def asked(self, id: str, arguments: str) -> None:
        if id in self._calls:
            call, source = self._calls[id]
            self._calls[id] = Call(id, call.name, arguments), source

    def answered(self, result: Result, source: int) -> None:
        self._results[result.id] = result, source

    def may_name(self, result: Result) -> bool:
        """Whether what a result names is worth carrying: what an act made is, what a look found is there to be found
        again."""
        called = self._calls.get(result.id)
        return not result.failed and (called is None or described(called[0]) is not None)

    def facts(self) -> Iterator[Fact]:
        for id, (call, source) in self._calls.items():
            told = described(call)
            if told is None:
                continue
            key, text = told
            result = self._results.get(id)
            if result is None:
                yield Fact("open", key, f"{text} (called; no result)", source)
            elif not result[0].failed and not _FAILED.search(result[0].text[:400]):
                first = next(
                    (" ".join(line.split()) for line in result[0].text[:2_000].split("\n") if line.strip()), ""
                )
                first = bare(first) if _SPEAKS.search(first.casefold()) else first
                short = first if len(first) <= 120 else f"{first[:119]}…"
                yield Fact("effect", key, f"{text} → {short}" if short else text, source)


def described(call: Call) -> tuple[str, str] | None:
    """Key and words of what a call does; None if it only looks."""
    called = (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", call.name[:100])
        .casefold()
        .replace("-", "_")
        .replace(".", "_")
        .replace(" ", "_")
    )
    given = decode_or_text(call.arguments) if len(call.arguments) <= 200_000 else call.arguments[:1_000]
    command = _command(given)
    if command is not None and (_SHELL.search(called) or not _ACTS.search(called)):
        if not _SHELL_ACTS.search(_NOWHERE.sub(" ", command[:2_000])):
            return None
        text = _short(" ".join(command.split()), 160)
        return f"{call.name} {text}", text
    last = called.rsplit("__", 1)[-1]
    if _LOOKS.match(last) or not _ACTS.search(last):
        return None
    words = _arguments(given)
    return _short(f"{call.name} {words}", 200), _short(f"{call.name} {words}", 170)


def _command(given: Json) -> str | None:
    if not isinstance(given, dict):
        return None
    command = next((given[k] for k in ("command", "cmd", "script") if k in given), None)
    if isinstance(command, list):
        return " ".join(c for c in command if isinstance(c, str))
    return command if isinstance(command, str) and ("path" not in given or " " in command) else None


def _arguments(given: Json) -> str:
    """The arguments that name things, word for word; what is long is left out."""
    if not isinstance(given, dict):
        return _short(" ".join(str(given).split()), 120)
    names = sorted(given, key=lambda k: _FIRST.index(k) if k in _FIRST else len(_FIRST))
    parts = [
        f"{key}={_short(' '.join(str(given[key]).split()), 80)}"
        for key in names
        if key not in _LONG and isinstance(given[key], str | int | float) and given[key] != ""
    ]
    return " ".join(parts)


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
