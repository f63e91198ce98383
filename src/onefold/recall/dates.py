"""The times that a query names: `2026-05-08`, `8 May 2026`, `im Mai`, `5月8日`. In UTC, as records are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onefold.recall.tokenizer import folded

_MONTHS: dict[str, int] = {}
for _names in (
    "january february march april may june july august september october november december",
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "januar februar marz april mai juni juli august september oktober november dezember",
    "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "январе феврале марте апреле мае июне июле августе сентябре октябре ноябре декабре",
    "ocak subat mart nisan mayis haziran temmuz agustos eylul ekim kasim aralik",
    "يناير فبراير مارس ابريل مايو يونيو يوليو اغسطس سبتمبر اكتوبر نوفمبر ديسمبر",
    "ינואר פברואר מרץ אפריל מאי יוני יולי אוגוסט ספטמבר אוקטובר נובמבר דצמבר",
    "जनवरी फ़रवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर अक्टूबर नवंबर दिसंबर",
    "tammikuu helmikuu maaliskuu huhtikuu toukokuu kesakuu heinakuu elokuu syyskuu lokakuu marraskuu joulukuu",
):
    _MONTHS.update({folded(name): number for number, name in enumerate(_names.split(), 1)})
_ISO = re.compile(r"\b((?:19|20)\d\d)-(\d\d?)(?:-(\d\d?))?\b")
_SIGNS = re.compile(r"(?:((?:19|20)\d\d)\s*[年년]\s*)?(\d\d?)\s*[月월](?:\s*(\d\d?)\s*[日일])?")
_TOKEN = re.compile(r"[^\W\d_\u4e00-\u9fff]+|\d+")
_YEAR = re.compile(r"(?:19|20)\d\d")
_MOST = 4
_AMBIGUOUS = frozenset({"may", "mar", "mars", "mai", "mart", "dec", "sep", "jan", "मई"})
"""Words of their own, or names: a day or a year has to stand beside them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time that a query names. Without a year, of each year."""

    year: int | None
    month: int | None
    day: int | None

    def holds(self, at: float) -> bool:
        when = datetime.fromtimestamp(at, UTC)
        return self.year in (None, when.year) and self.month in (None, when.month) and self.day in (None, when.day)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """From a time up to another one; None if it is of each year."""
        if self.year is None:
            return None
        try:
            start = datetime(self.year, self.month or 1, self.day or 1, tzinfo=UTC)
        except ValueError:
            return None
        if self.day is not None:
            stop = start + timedelta(days=1)
        elif self.month is not None:
            stop = datetime(self.year + self.month // 12, self.month % 12 + 1, 1, tzinfo=UTC)
        else:
            stop = datetime(self.year + 1, 1, 1, tzinfo=UTC)
        return start.timestamp(), stop.timestamp()


def spans(text: str) -> tuple[Span, ...]:
    return tuple(dict.fromkeys(_found(text)))[:_MOST]


def _found(text: str) -> Iterator[Span]:
    named = False
    for found in _ISO.finditer(text):
        named = True
        yield Span(int(found[1]), int(found[2]), int(found[3]) if found[3] else None)
    for found in _SIGNS.finditer(text):
        named = True
        yield Span(int(found[1]) if found[1] else None, int(found[2]), int(found[3]) if found[3] else None)
    tokens = _TOKEN.findall(folded(_ISO.sub(" ", text)))
    for i, token in enumerate(tokens):
        month = _MONTHS.get(token)
        if month is None:
            continue
        day = next((d for d in (_day(tokens, i - 1), _day(tokens, i + 1), _day(tokens, i - 2)) if d is not None), None)
        year = next((int(t) for t in tokens[i + 1 : i + 4] if _YEAR.fullmatch(t)), None)
        if day is None and year is None and token in _AMBIGUOUS:
            continue
        named = True
        yield Span(year, month, day)
    if not named:
        yield from (Span(int(token), None, None) for token in tokens if _YEAR.fullmatch(token))


def _day(tokens: list[str], i: int) -> int | None:
    if not 0 <= i < len(tokens) or not tokens[i].isdecimal():
        return None
    return int(tokens[i]) if 1 <= int(tokens[i]) <= 31 else None
