"""One summarizer after the other, until one makes a summary that will do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onefold.compaction.summarizer import Summarizer, SummaryInput, call
from onefold.compaction.summary_checks import find_problem
from onefold.errors import SummarizerFailed
from onefold.messages.codecs import estimate
from onefold.model import Summary, Usage


def fallbacks(first: Summarizer, *others: Summarizer) -> Fallbacks:
    """A summarizer that asks the first, and each of the others if those before it fail or make what would be rejected.

    Only who is named is asked: list `onefold.extract` last to have a summary in any case. The summary says whose it is
    (`by`) and who failed before (`instead_of`); what all of them cost is added up.
    """
    return Fallbacks((first, *others))


@dataclass(frozen=True)
class Fallbacks:
    summarizers: tuple[Summarizer, ...]

    def __call__(self, material: SummaryInput) -> Summary:
        spent = Usage()
        causes: list[str] = []
        failures: list[SummarizerFailed] = []
        for summarizer in self.summarizers:
            if material.stopped():
                raise SummarizerFailed("nobody waits for the summary any more", kind="stopped", spent=spent)
            name = _name(summarizer)
            try:
                made = call(summarizer, material)
            except Exception as error:
                failed = error if isinstance(error, SummarizerFailed) else _unexpected(error)
                spent += failed.spent
                if failed.kind == "stopped":
                    raise SummarizerFailed(str(failed), kind="stopped", spent=spent) from error
                failures.append(failed)
                causes.append(f"{name}: {failed}")
                continue
            spent += made.spent
            wrong = _complaint(made, material)
            if (
                wrong is None or summarizer is self.summarizers[-1]
            ):  # the last one's is for the engine to refuse, by name
                return replace(made, by=made.by or name, spent=spent, instead_of=(*causes, *made.instead_of))
            causes.append(f"{name}: {wrong}")
        raise _all_failed(causes, failures, spent)


def _complaint(made: Summary, material: SummaryInput) -> str | None:
    """What the engine would say, as far as it can be told here: it knows more exactly what the summary replaces."""
    replaces = sum(r.header.tokens for r in material.records if r.header) + estimate(material.previous or "")
    wrong = find_problem(
        made,
        previous=material.previous,
        replaces=replaces,
        shrink=0.0,
        said=[material.text(r) for r in material.records],
        limit=material.max_tokens,
    )
    return None if wrong is None else wrong.words


def _unexpected(error: Exception) -> SummarizerFailed:
    return SummarizerFailed(f"{type(error).__name__}: {error}", kind="unavailable")


def _all_failed(causes: list[str], failures: list[SummarizerFailed], spent: Usage) -> SummarizerFailed:
    """Worth another try if one of them is, and as soon as one of them may be asked again."""
    waits = [f.retry_after or 0.0 for f in failures if not f.final]
    return SummarizerFailed(
        "no summarizer made a summary: " + "; ".join(causes),
        kind=failures[-1].kind,
        spent=spent,
        retry_after=min(waits, default=None),
        final=all(f.final for f in failures) and len(failures) == len(causes),
    )


def _name(summarizer: Summarizer) -> str:
    by = getattr(summarizer, "by", None)
    return by if isinstance(by, str) else getattr(summarizer, "__name__", type(summarizer).__name__)
