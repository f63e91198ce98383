"""What somebody wants, chose or has yet to do: preferences, decisions, the goal, the next step, open work."""

from __future__ import annotations

import re

from onefold.compaction.orders import STANDING
from onefold.compaction.subjects import Made, Sentence, choice, content, name, word_set

_START = (
    r"^\W{0,3}(?:(?:oh|ps|fyi|btw|by the way|one more thing|another thing|before i forget|side note|just|hm+|ok|"
    r"okay|please|so|and|but|also|actually|well|right|great|thanks|yes|then|now|fine|alright|sorry|"
    r"wait)[,.:]? ){0,3}"
)

_PREFERS = re.compile(
    r"\b(?:i|we)(?: (?:really|always|strongly|generally|usually|personally|much|would|still|now|also))* prefer\b|\bi'd "
    r"prefer\b"
    r"|\bmy preference\b|\bpreferably\b|\bmy (?:favou?rite|preferred)\b|\bpreferred \w+(?: \w+)? (?:is|are)\b|"
    r"\bpreferences?:"
    r"|\bi (?:really |absolutely |just )?(?:like|love|hate|dislike|can't stand|detest|enjoy) (?!to (?:think|know)|that "
    r"(?:we|you|it)|how|"
    r"the (?:idea|way)|it\b|this\b|that\b|your\b)(?:\w+ ){0,8}(?:better|best|more|code|format\w*|style|tone|answers?|"
    r"replies|comments|"
    r"emojis?|tests?|names?|bullet\w*|tables?|when|in|over|with|without|short|long|\w+s)\b"
    r"|^\W{0,3}i (?:really |absolutely )?(?:like|love|hate|dislike) (?!it\b|this\b|that\b|how\b|the (?:idea|way)|"
    r"your\b|to\b|where|what)\S+(?: \S+){0,5}$"
    r"|\bi want (?:all|every|each|everything|your)\b"
    r"|\bi(?:'d| would) (?:rather|like it (?:if|better))\b|\bi(?:'m| am) (?:allergic|vegetarian|vegan|colou?r-?blind|"
    r"left-handed|"
    r"dyslexic|lactose|gluten)\b"
    rf"|{_START}(?:call me|address me as)\b"
    rf"|{_START}(?:always )?(?:answer|reply|respond|write|speak|talk|explain|communicate|comment)(?: \w+){{0,4}} in "
    r"(?!the (?:file|repo|readme|"
    r"next)|a (?:file|minute|moment)|\d)\w+"
    rf"|{_START}(?:keep|make) (?:it|your (?:answers?|replies|messages|responses|explanations|summaries)|(?:the "
    r")?(?:answers?|replies|"
    r"responses|tone|style|explanations|commit messages|comments|summaries))\b[^.]{0,40}\b(?:short|brief|concise|"
    r"formal|informal|friendly|"
    r"simple|polite|terse|casual|professional|detailed|neutral|to the point|small|bulleted|plain)\b"
    rf"|{_START}be (?:brief|concise|terse|formal|direct|polite|blunt|precise|verbose)\b"
    r"|\bas (?:a )?bullet(?:s| points)\b.*\bplease\b|\b(?:british|american) (?:spelling|english)\b"
)
_LEANS = re.compile(
    r"\b(?:i|we)(?:'m| am|'ve| have|'re| are)? (?:\w+ ){0,2}?(?:a |much of a |no |not a |not much of a )?(?:big |"
    r"huge |great "
    r"|real )?(?:fan|friend|lover|admirer) of\b"
    r"|\b(?:i|we)(?: \w+)? (?:tend to|lean towards?|lean to|incline to|gravitate towards?) \w"
    r"|\b(?:i|we)(?:'d|'ll)? (?:always|usually|generally|normally|mostly|typically|would always|mainly)(?: \w+)? "
    r"(?:go for|"
    r"go with|favou?r|choose|pick|take|want|like|opt for|use|fly|travel|eat|drink|order|write|read|work with)\b"
    r"|\bi(?:'m| am| feel| work| do| fare|'d be) (?:\w+ )?(?:happiest|happier|most comfortable|more comfortable|"
    r"comfortable|"
    r"best|better|better off|at my best|at ease|partial|keen|happy) (?:with|to|on|in|when|off with) (?!that\b|"
    r"this\b|it\b|"
    r"how\b|the (?:result|progress|outcome))"
    r"|\bi(?:'m| am) (?:\w+ )?more of an? \w|\bi get (?:along|on) (?:\w+ )?with\b"
    r"|\b(?:works?|suits?|fits?|reads?) (?:me )?(?:best|better|nicely|well) for me\b|\bsuits? me (?:best|better|"
    r"fine|well)\b"
    r"|\bi (?:can't|cannot|can not) (?:stand|bear|abide)\b|\b(?:i|we) (?:\w+ )?(?:hate|loathe|detest|despise|"
    r"dislike|adore|"
    r"favou?r|fancy|could do without) (?!it\b|this\b|that\b|how\b|the (?:idea|way|fact|thought)|when\b|your\b|to\b)"
    r"|\bi (?:don't|do not)(?: \w+)? (?:like|care for|enjoy|fancy|appreciate|need) (?!it\b|this\b|that\b|how\b|the "
    r"(?:idea|"
    r"way|look|sound)|to\b)"
    r"|\b(?:not|isn't|aren't|never) (?:\w+ )?my (?:thing|style|taste|cup of tea)\b|\bspare me\b"
    r"|\b(?:i|we) (?:\w+ )?(?:want|need|like|take|have|choose) (?:[\w'-]+ ){1,6}?(?:rather than|instead of|over|"
    r"more than|"
    r"better than|any day)\b|\b(?:i|we) (?:usually|generally|normally|really|always|just|only)? ?want "
    r"[^.;:]{2,60}, not \w"
    r"|\bi like [^.;:]{2,60} (?:better|more|best|most)\b"
    r"|\b(?:my|our) (?:taste|go-to|first choice|personal favou?rite|choice would be|inclination)\b"
    r"|\b(?:please|could you|can you|would you) (?:please )?(?:stick (?:to|with)|go for) (?!the plan|that\b|this\b|"
    r"it\b)\w"
    rf"|{_START}(?:(?:if|when|where|wherever|whenever) (?:you|there|we|it|possible|in)\b[^,:]{{0,40}}\b(?:choice|"
    rf"choose|doubt|"
    r"option|possible|either|up to you)|given (?:the|a) choice|by default|as a default|ideally|all else being equal|"
    r"personally|speaking for myself|for my taste)[,:]? (?!nothing|there|that (?:is|was)|it\b)\w"
    r"|\b(?:go (?:for|with)|take|use|give me|choose|pick|opt for|write|send|do|have|prefer|get|leave) (?:[\w'-]+ "
    r"){1,6}?(?:"
    r"rather than|instead of|in preference to|and not|over) [^?]{2,60}"
    r"\b(?:when|where|if|by default|in doubt|choice|please|possible|me)\b"
)
_VERSUS = re.compile(
    rf"{_START}(?!(?:the \w+|we|i|it|he|she|they|that|this|there)(?: is| are| was| has|'s|'re)\b)(?:[\w&'./-]+ "
    rf"){{1,6}}(?:over|"
    r"rather than|instead of|before|not) (?:[\w&'./-]+ ?){1,6}(?:, (?:please|always|thanks|if possible|any day|"
    r"every time)|"
    r" please| any day)\W*$|"
    rf"{_START}(?:[\w&'./-]+ ){{0,5}}[\w&'./-]+, not (?:[\w&'./-]+ ?){{1,5}}(?:, (?:please|always|thanks|if possible)|"
    rf" please)\W*$"
)
_SHAPED = re.compile(
    rf"{_START}(?P<how>format|show|display|render|spell|express|cite) (?P<what>(?:[\w'-]{{2,30}} ){{1,4}}?)(?:as|in|"
    r"with|using) \S"
)
_NAMING = re.compile(rf"{_START}(?:call me|address me as)\b")
_LANGUAGE = re.compile(
    rf"{_START}(?:always )?(?:answer|reply|respond|write|speak|talk|explain|communicate)(?: (?:answers?|replies|"
    r"responses|me|to me|back|"
    r"everything|only|to (?:him|her|them)))?"
    r" in (?P<what>english|german|french|spanish|italian|portuguese|dutch|polish|russian|chinese|mandarin|japanese|"
    r"korean|turkish|arabic|hindi|"
    r"swedish|danish|norwegian|finnish|czech|greek|ukrainian|plain english)\b"
)


_PREFERRING = word_set(
    "format show display render spell express cite address american answer be british bullet bullets call comment "
    "communicate explain i i'd i'm keep make my "
    "prefer preferably preference preferences preferred prefers reply respond speak talk write"
)


_LEANING = word_set(
    "fan friend lover admirer tend tends lean incline gravitate always usually generally normally mostly typically "
    "mainly "
    "happiest happier comfortable best better ease partial keen happy along on suits suit fits reads works stand "
    "bear abide "
    "hate loathe detest despise dislike adore favour favor fancy could like care enjoy appreciate need style taste "
    "cup spare "
    "rather instead over more any want better most go-to choice inclination stick default doubt ideally personally "
    "speaking "
    "possible option either given equal not please person"
)


def preference(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if not said.words & _PREFERRING and not said.words & _LEANING:
        return []
    leans = said.words & _LEANING and (_LEANS.search(low) or _VERSUS.search(low))
    if not (leans or _PREFERS.search(low) or _SHAPED.search(low)):
        return []
    if (shaped := _SHAPED.search(low)) is not None:
        return [Made("preference", f"{shaped['how']} {name(shaped['what'])}", text)]
    if _NAMING.search(low):
        return [Made("preference", "call me", text)]
    if _LANGUAGE.search(low):
        return [Made("preference", "answer in", text)]
    return [Made("preference", _choice_key(text), text)]


_DECIDES = re.compile(
    r"\b(?:i|we)(?:'ve| have)?(?: (?:just|all|finally|already|now|also))* (?:decided|agreed|chose|chosen|settled on|"
    r"opted|concluded|resolved|"
    r"picked|committed to using|ruled out|standardi[sz]ed on)\b|^\W{0,4}(?:final |design |key |architecture |new |team "
    r")?decisions?\b(?: \d+| changed| reversed| revised| update)?\s?(?:is\b|:|-|\u2013|\u2014|was\b)"
    r"|\b(?:the|our|my) (?:final )?decision (?:is|was)\b|\bit(?:'s| is| was) (?:decided|settled|agreed)\b|\b(?:was|"
    r"were|is|has been) decided\b"
    rf"|{_START}(?:let's|lets|let us) (?:use|go with|stick|keep|pick|switch|move|adopt|choose|drop|call|name|target|do "
    r"it|go for|store|put|make|"
    r"build|base|standardi[sz]e|default|run|ship|host|replace|rename|postpone|skip|leave)\b"
    r"|\b(?:i|we)(?:'ll|'re going to| will| are going to| shall|'m going to)(?: (?:now|just|instead|stick|always|both|"
    r"all))* (?:use|go with|stick with|keep|adopt|"
    r"switch to|move to|target|store|standardi[sz]e on|base|be using|host|replace|rely on|stay with|support|drop)\b"
    r"|\b(?:we're|we are|i'm|i am) (?:going|sticking|staying) with\b|\b(?:we|i) (?:went|go) with\b"
    rf"|{_START}(?:use|go with|stick with|stick to|switch to|pick|adopt|choose|default to|stay with|replace|migrate to|"
    r"move to|switch from|move from|migrate from)"
    r" (?!it\b|this\b|that\b|your (?:judg|best|own)|the (?:same|following|above|command))\S+"
    r"|\b(?:instead of|rather than)\b.*\b(?:use|using|go|take|with)\b|\bchange of plans?\b|\bthe plan is\b|\bagreed:|"
    r"\bwe use\b|\b(?:will|shall) (?:now )?(?:use|be (?:built|written|hosted|stored))\b|\b(?:i|we) (?:won't|will not|"
    r"are not going to|aren't going to) (?!be\b|have\b|know\b|see\b)\w|\bwe are using\b"
)
_WAVERS = re.compile(
    r"\b(?:haven't|have not|not yet|hasn't|didn't|can't|still to be|to be|yet to) (?:been )?(?:decide|agree|choose|"
    r"settle|pick)|\bundecided\b"
)
_SEES = re.compile(
    r"\b(?:i'll|i will|let me|we'll|we will|let's) (?:use|keep) (?:the )?(?:\w+_\w+|grep|tool|search|read|bash|you "
    r"(?:posted|updated))\b"
)


_DECIDING = word_set(
    "adopt agreed am are change choose chose chosen concluded decided decision decisions default go going i'll "
    "i'm instead it's let let's lets migrate move opted pick picked plan rather replace resolved ruled settled "
    "shall standardised standardized stay stick switch use using we'll we're went will won't"
)


def decision(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if not said.words & _DECIDING:
        return []
    if not _DECIDES.search(low) or _WAVERS.search(low) or _SEES.search(low):
        return []
    return [Made("decision", _choice_key(text), text)]


def _choice_key(text: str) -> str:
    picked = choice(text)
    if not picked.chosen:
        return " ".join(content(text))[:200] or text[:200]
    key = " ".join(picked.chosen)
    return (f"{key} for {picked.purpose}" if picked.purpose else key)[:200]


_GOAL = re.compile(
    rf"{_START}(?:(?:the|our|my|your|new|current|main|overall|ultimate|real|actual|updated) ){{0,3}}(?P<name>goal|"
    r"objective|aim|mission|task|job|purpose|end goal)s?"
    r"(?P<of> (?:for|of|in|here|now|today|at)[^:=]{0,40}?)?\s?(?:is|are|:|=|-|\u2013|changed to|has changed|"
    r"becomes)(?: "
    r"now)?\s\S"
)
_REQUEST = re.compile(
    rf"{_START}(?:i|we)(?:'d| would)? (?:want|need|like) (?:you |us )?to (?!know|see|think|ask|say|understand|be "
    r"(?:sure|clear))\w"
    rf"|{_START}(?:help me|i'm trying to|i am trying to|we're trying to|we are trying to|we're building|we are "
    r"building|i'm building|we're migrating|"
    r"we are migrating|i'm working on|we're working on|we are working on)\b"
    r"|\bwhat i (?:want|need) is\b|\bthe point (?:here )?is to\b"
)


def goal(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    named = _GOAL.search(low)
    if named is not None:
        of = name((named["of"] or "").strip().removeprefix("here").removeprefix("now"))
        called = of.removeprefix("for ").strip()
        return [Made("goal", f"{called} goal" if called else "goal", text)]
    return [Made("goal", "request", text)] if _REQUEST.search(low) and not STANDING.search(low) else []


_NEXT = re.compile(
    rf"{_START}(?:(?:the|our|my|your|immediate) )?next (?:steps?|task|action|up|thing|item)\b|{_START}next[,:] |"
    r"\b(?:is|comes) next\b(?! (?:to|week))"
    r"|\b(?:i'll|i will|we'll|we will|let's|then) [^.]{1,120}\bnext\b(?! (?:to|week|month|year|time))"
    r"|\bwhat(?:'s| is) next:"
)


_NEXT_WORDS = frozenset({"next"})


def next_step(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if not said.words & _NEXT_WORDS:
        return []
    return [Made("next", "next", text)] if _NEXT.search(low) else []


_OPEN = re.compile(
    r"^\W{0,6}(?:todo|to do|to-do|fixme|open|open (?:items?|questions?|points?|issues?|work)|remaining|outstanding|"
    r"pending|still open|left to do|"
    r"still to do|blocked|blocker|follow-?up)s?\b\s?(?:\(\w+\))?\s?[:\-\u2013\u2014]"
    r"|\b(?:still|yet) (?:need|needs|have|has|to be|open|pending|missing|outstanding|waiting|to do|left|must|blocked)\b"
    r"|\b(?:remains?|is left|are left|left) to (?:be )?\w+|\b(?:has|have|is|are|was|were)(?:n't| not)(?: yet)?(?: "
    r"been)? \w+(?: \w+){0,6} yet\b"
    r"|\b(?:haven't|have not|hasn't|has not|not) (?:yet )?(?:been )?(?:pushed|deployed|committed|sent|merged|published|"
    r"released|written|"
    r"updated|run|migrated|started|finished|tested|done|paid|refunded|booked|shipped|confirmed|answered|reviewed|"
    r"approved|created|deleted)\b"
    r"|\b(?:waiting|blocked) (?:for|on|by)\b|\b(?:is|are|remains?) (?:still )?(?:open|pending|outstanding|unresolved|"
    r"in progress)\b"
)
_QUIET = re.compile(r"\b(?:open source|open to|open the)\b")


_OPEN_WORDS = word_set(
    "blocked blocker do fixme follow-up followup hasn't haven't left not open outstanding pending progress remain "
    "remaining remains still to-do todo unresolved waiting yet"
)


def open_work(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if not said.words & _OPEN_WORDS:
        return []
    if not _OPEN.search(low) or _QUIET.search(low):
        return []
    return [Made("open", done_key(text), text)]


_ACT = re.compile(
    r"(?:push|deplo|commit|send|sent|merg|publish|releas|writ|wrote|updat|migrat|delet|remov|creat|refund|book|cancel|"
    r"upload|install|"
    r"renam|mov|ship|paid|pay|drop|restart|tag|add|schedul|notif|email|post|clos|open|order|fix|implement|archiv|revok|"
    r"rotat|appl|revert|"
    r"test|finish|run|ran|start|review|approv|confirm|answer|roll|transferr?|disabl|enabl)\w*"
)


def done_key(text: str) -> str:
    """The act and what it was done to, the act first: open work and its end meet in it."""
    words = content(text)
    acts = [w for w in words if _ACT.match(w)]
    act = next((w for w in acts if w not in _NOUNS_TOO), acts[0] if acts else "")
    rest = " ".join(w for w in words if w != act and w not in _PASSING)
    return f"{act or 'do'} {rest}"[:200].strip()


_NOUNS_TOO = word_set("email order book post releas tag test review open start run fix answer commit")
_PASSING = word_set("todo pend remain open left leav outstand wait block successfulli just successfully")
