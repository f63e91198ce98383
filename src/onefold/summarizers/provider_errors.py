"""Classifies provider errors by what to do about them. Reads the errors of both SDKs; imports neither."""

from __future__ import annotations

import json
import re
from email.utils import parsedate_to_datetime

from onefold.errors import SummarizerFailed
from onefold.model import Clock, Json

OVERFLOW = re.compile(
    r"""
      context[ _-]*(length|window|size)[^.]{0,40}(exceed|only|limit)  # context_length_exceeded, … is only 4096
    | (exceed|greater|longer|larger|beyond|over|too\s(long|large|big))\w*\b[^.]{0,60}\b
      (context|maximum\smodel\slength|tokens\sallowed)
    | (maximum|max)\s(context|prompt|input|model)\s(length|size|tokens?)
    | (prompt|input|messages?|request|conversation|query)\b[^.]{0,30}\b(is|are)?\s?too\s(long|large|big)
    | exceed_context_size | request_too_large | string_above_max_length | max_prompt_tokens
    | (input|prompt)\stokens?\b[^.]{0,60}\bexceed
    | tokens?\s*>\s*[\d,]+\s*(maximum|limit)
    | reduce\sthe\s(length|number)\sof\s(the\s|your\s)?(messages|prompt|input|tokens)
    | tokens\smust\sbe\sreduced
    | too\smany\s(input\s)?tokens | model\stoken\slimit
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How providers say that a prompt does not fit: each in words of its own, and some change them."""

_TOO_LARGE = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
"""Among the words for too many requests: those that no wait will help."""
_NO_MONEY = re.compile(r"insufficient_quota|credit balance|insufficient (credits|funds|balance)|billing", re.IGNORECASE)
_REFUSED = re.compile(
    r"content[ _](filter|policy|management)|responsible ai|moderation|safety (system|filter)", re.IGNORECASE
)
_KINDS = {
    "overloaded_error": 529,
    "api_error": 500,
    "timeout_error": 504,
    "server_error": 500,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "billing_error": 402,
}
"""The status that an error would have had, had it not come in the middle of a stream."""

_SETUP = {
    401: "rejected the key: {key}",
    402: "wants to be paid first: see to the account, or use another model",
    403: "does not let this key use the model: use another key or another model",
    404: "does not know the model or the address: check model and base_url",
    405: "does not know the address: check base_url",
}
_NO_KEY = re.compile(r"api[ _-]?key|credential|authenticat|unauthori[sz]ed|(auth|access)[ _-]?token", re.IGNORECASE)
"""How an SDK says, before it asks anybody, that it has no key."""
_MISTAKES = frozenset({"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"})
_LONGEST_QUOTE = 300


def classify(
    error: Exception, *, who: str, variable: str | None, clock: Clock, secret: str | None = None
) -> SummarizerFailed:
    """The same error as one that says what to do. `variable` is where the key would be in the environment, or None if
    the client is somebody else's; `secret` is the key, which some providers quote."""
    words, code = _told(error)
    words = words.replace(secret, "…") if secret else words
    status = _status(error, code)
    if status is not None:
        return _by_status(status, words, code, who=who, variable=variable, after=retry_after(error, clock))
    names = _names(error)
    if names & _MISTAKES:
        return SummarizerFailed(f"{who} cannot be asked: {words}; check base_url", kind="setup", final=True)
    if names & {"APITimeoutError", "TimeoutException"} and "ConnectTimeout" not in names:
        return SummarizerFailed(f"{who} did not answer in time", kind="timeout")
    if names & {"APIConnectionError", "TransportError", "OSError"}:
        return SummarizerFailed(f"{who} could not be reached, or the connection was cut: {words}", kind="unavailable")
    if names & {"ValueError", "AttributeError", "APIResponseValidationError", "DecodingError"}:
        return SummarizerFailed(f"{who} gave an invalid answer: {words}", kind="garbage")
    if "APIError" in names:
        return _by_status(500, words, code, who=who, variable=variable, after=None)
    if _NO_KEY.search(words):
        advice = f"give api_key, or set {variable}" if variable else "give its client a key"
        return SummarizerFailed(f"{who} cannot be asked: {words}; {advice}", kind="setup", final=True)
    return SummarizerFailed(f"{who} failed: {type(error).__name__}: {words}", kind="unknown")


def retry_after(error: Exception, clock: Clock) -> float | None:
    """How many seconds the provider asks to be left alone, if it does."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) / unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - clock())
        except ValueError:
            continue
    return None


def _by_status(
    status: int, words: str, code: str, *, who: str, variable: str | None, after: float | None
) -> SummarizerFailed:
    said = f"({status}: {words})"
    both = f"{code} {words}"
    too_long = _TOO_LARGE if status == 429 else OVERFLOW
    if status == 413 or (status in (400, 422, 429, 500) and too_long.search(both)):
        return SummarizerFailed(f"the prompt does not fit into {who} {said}", kind="overflow")
    if _NO_MONEY.search(both) and status in (400, 403, 429):
        status = 402
    if status in _SETUP:
        where = f"give the right one as api_key, or in {variable}" if variable else "give its client the right one"
        advice = _SETUP[status].format(key=where)
        return SummarizerFailed(f"{who} {advice} {said}", kind="setup", final=True)
    if status == 429:
        return SummarizerFailed(f"{who} asks for fewer requests {said}", kind="rate limit", retry_after=after)
    if status >= 500 or status in (408, 409, 425):
        return SummarizerFailed(f"{who} is not available now {said}", kind="unavailable", retry_after=after)
    if _REFUSED.search(both):
        return SummarizerFailed(f"{who} refused to read the conversation {said}", kind="refused")
    return SummarizerFailed(f"{who} does not take the request {said}", kind="setup", final=True)


def _status(error: Exception, code: str) -> int | None:
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return status
    if code in _KINDS:
        return _KINDS[code]
    if code.isdecimal() and 400 <= int(code) <= 599:
        return int(code)  # a gateway passes on in mid stream what the provider behind it said
    return None


def _told(error: Exception) -> tuple[str, str]:
    """What the provider says of it, as one short line, and the name it has for it."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(inner, dict):
        code = next((str(inner[n]) for n in ("code", "type") if inner.get(n) not in (None, "")), "")
        return _line(inner.get("message") or inner), code
    return _line(inner or body or getattr(error, "__cause__", None) or error), ""


def _line(value: Json) -> str:
    text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, dict | list) else str(value)
    line = " ".join(text.split()) or type(value).__name__
    return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "…"


def _names(error: BaseException) -> set[str]:
    """The names of its classes, and of those of what led to it: SDKs and HTTP clients have trees of their own."""
    causes = [error, *([error.__cause__] if error.__cause__ is not None else [])]
    return {kind.__name__ for e in causes for kind in type(e).__mro__}
