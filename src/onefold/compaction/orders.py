"""Orders in plain words: rules and prohibitions, their end, and limits with their numbers. English well, the commonest
prohibitions of some other languages too. All patterns are bounded, so that no text makes them slow."""

from __future__ import annotations

import re

from onefold.compaction.subjects import Made, Sentence, content, name, order_key, plain, stem, word_set

_AT_START = (
    r"(?:^|[,;:.!\u2013\u2014-] ?|\(?\d{1,2}[.)] ?|\b(?:and|but|so|then|please|also|just|ok|okay|remember|actually|"
    r"thanks|to) "
    r")\W{0,3}"
)
_SOMEBODY = (
    r"(?:you|we|nobody|no one|no-one|everyone|everybody|anyone|nothing|agents?|they|it|one|all \S+(?: \S+)?|every \S+"
    r"(?: \S+)?|each \S+|any \S+|the \S+(?: \S+){0,3}|this \S*|these \S+|those \S+|our \S+(?: \S+)?|my \S+(?: \S+)?|"
    r"\S+s)"
)
_CHATTER = (
    r"(?!(?:worry|mind|know|think|believe|hesitate|get me wrong|panic|sweat|understand|recall|remember|see|care|be "
    r"(?:silly|sorry|afraid|shy|surprised)|you (?:think|agree|dare|worry|just|see|know|have|want|love|hate)|feel bad|"
    r"take (?:this|it|that) (?:personally|the wrong)|quote me|ask me (?:why|how|what)|even (?:know|ask|get me)|really "
    r"(?:know|think|care|mind|understand)|heard|seen|knew|been|had|thought|got|did|was|were|again\b|ending|say never|"
    r"lose hope|we all|i know|seem|look like|have (?:a|any|the) )\b)"
)
_FORBIDS = re.compile(
    _AT_START + r"(?:do not|don't|dont|never)[,:]? (?:ever,? |you )?" + _CHATTER + r"\w"
    r"|" + _AT_START + r"(?:avoid|refrain from|stay (?:out|away)|hands off|steer clear|stop) "
    r"(?!here\b|there\b|it there|by\b|and\b|for now)\w"
    r"|"
    + _AT_START
    + r"no (?!problem|worries|idea|need|one\b|doubt|luck|wonder|thanks|longer|way|rush|hurry|news|clue|"
    r"matter|offen[cs]e|big deal|thank|it|i|we|that|this|the|you|they|he|she|there|but|sorry|not|results?|errors?|"
    r"changes? (?:found|detected)|more questions)(?:more )?[\w-]{2,}"
    r"|\b(?:can|could|would|will) you (?:please |kindly )?(?:not|never|avoid|stop|refrain)\b"
    r"|\bunder no circumstances\b|\bat no (?:point|time) (?:should|may|must|can)\b|\bon no account\b"
    r"|\b(?:must|may|shall|should|is to|are to|(?:is|are|am) supposed to|ought to)(?: not| never|n't)\b(?! (?:be "
    r"(?:hard|"
    r"difficult|a problem|too)|take (?:long|too)|matter|have|work|cause|happen))"
    r"|\b(?:is|are|'s|'re|stays?)(?: \w+)? (?:not (?:ok|okay|fine|on|an option|negotiable|acceptable|your \w+)|out "
    r"of the "
    r"question|off the table|a (?:taboo|dealbreaker|red line)|ruled out|to be avoided|verboten)\b|\b(?:should|must|has "
    r"to|have to) be avoided\b"
    r"|\b(?:in no case|by no means|on no condition|not under any circumstances|in no way (?:should|may|must))\b"
    r"|\b(?:i|we) (?:won't|will not|can't|cannot|don't|do not|refuse to) (?:have|allow|tolerate|accept|permit|"
    r"stand for|"
    r"approve of|put up with) (?!it\b|that\b|time\b|a (?:clue|preference))|\bi (?:forbid|object to)\b|\bi(?:'m| am) "
    r"(?:\w+ )?(?:against|opposed to)\b"
    r"|\byou(?:'re| are| have| do not have| don't have)(?: \w+)? (?:not (?:allowed|permitted|authori[sz]ed|cleared|"
    r"supposed) to|no (?:permission|business|right|authority|need or right)|permission to)\b"
    r"|" + _AT_START + r"(?:keep|stay) (?:away|clear|off|out|your (?:hands|fingers))\b"
    r"|\b(?:mustn't|shan't)\b|\b(?:important|crucial|critical|essential|vital|imperative|insist|expect)(?: \w+){0,3}? "
    r"(?:that )?(?:\w+ )?(?:never|do not|don't|not|nobody|no one)\b"
    r"|\b(?:you|we|nobody|no one|they|agents?|it) (?:can ?not|can't|are not to|aren't to|are never to)\b(?! (?:believe|"
    r"see|"
    r"find|tell|say|imagine|help|wait|reproduce|connect|log|be sure|know|get|figure|understand|afford to lose))"
    r"|\b(?:is|are|stays?|remains?|'s|'re)(?: strictly| absolutely| completely| totally| now| still)? (?:not allowed|"
    r"not "
    r"permitted|forbidden|prohibited|banned|off[- ]limits|read[- ]only|out of bounds|not acceptable|unacceptable|a "
    r"no-go|"
    r"frozen|taboo|not to be|never to be)\b"
    r"|\bi (?:don't|do not|never) want (?:you|any|to see|the|us|it|this|my|our|anyone|anybody|emails?)\b"
    r"|\bi'd rather (?:you|we) (?:didn't|not)\b|\bi want (?:you|us) to (?:never|not|avoid|stop)\b"
    r"|\b(?:nobody|no one|nothing|none of \S+(?: \S+)?) (?:may|should|must|can|gets?|goes|is to|is allowed)\b"
    r"|\b(?:leave|keep) (?!it\b|in\b|an\b|me (?:posted|updated)|up\b|going\b)[^.]{1,60} (?:alone|untouched|as (?:it|"
    r"they) "
    r"(?:is|are)|out of|private|secret|unchanged|intact|confidential)\b"
    r"|\b(?:niemals|auf keinen fall|darfst? nicht|bitte (?:nicht|keine?n?)|unter keinen umständen|verboten)\b"
    r"|^(?:s'il (?:te|vous) pla[iî]t,? |surtout,? )?(?:ne |n')\w+|\b(?:il est interdit|interdit de|tu ne dois (?:pas|"
    r"jamais))"
    r"|^(?:por favor,? )?(?:nunca|jam[aá]s|no (?:hagas|uses|toques|borres|subas|env[ií]es|publiques|cambies|elimines|"
    r"debes)|"
    r"não (?:faça|use|toque|apague|envie|publique|mude|deve)|non (?:fare|usare|toccare|cancellare|inviare|devi))\b"
    r"|\b(?:est[aá] prohibido|é proibido|è vietato|никогда не|нельзя|запрещено|ни в коем случае)\b"
    r"|不要|禁止|切勿|不得|绝不|千万别|请勿|しないで|てはいけ|てはならない|하지 마"
)
_STANDING_MARK = (
    r"\b(?:without (?:fail|exceptions?)|no exceptions|at all (?:times|costs)|every single (?:time|one)|each (?:and "
    r"every )?"
    r"time|no matter (?:what|how|who|when|where|which)|whatever happens|as a (?:general |strict )?rule|as a matter of "
    r"(?:policy|principle|course)|by policy|non-negotiable|throughout|in (?:each and )?every case|in all cases|for "
    r"good|"
    r"until further notice|from (?:here|today) on|on principle|religiously|invariably)\b"
)
STANDING = re.compile(rf"{_STANDING_MARK}|\b(?:always|never|from now on|going forward|every time)\b")
"""What makes an order one that stays."""
_ALSO_FORBIDS = re.compile(
    r"\b(?:that|if|ask|want|expect|me|prefer|rather|trust|like|need) you (?:not|never|don't|do not|won't|will not|"
    r"didn't) \w"
    r"|\bask(?:ing)? you not to\b"
    r"|\bwe (?:simply |just |really )?(?:never|don't|do not) (?!know|think|see|have|want|need|care|mind|understand|"
    r"remember|"
    r"get|even|really|yet|feel|believe|seem|like|agree|did|knew|had|got|found|saw|was|were|went|came|said|thought|"
    r"took|made|"
    r"heard|talk|all|look|quite|actually|ever (?:\w+ed|saw|had|got)|expect|\w+ed\b)\w+ \w"
    r"|\b(?:not a thing|not with us|not on my watch|not in my name|never an option)\b"
    r"|\b(?:will|shall|can|may|must|should|is|are)(?: not|n't) (?:be )?(?:tolerated|accepted|acceptable|"
    r"permissible|allowed)\b"
    r"|\b(?:ban|embargo|freeze|moratorium) on\b|\bthere (?:must|should|shall|may|can|will|is to|are to) be no\b"
    r"|\b(?:is|are) (?:reserved|left) (?:for|to) (?:me|us|[A-Za-z]+)\b"
    r"|"
    + _AT_START
    + r"(?:kindly )?(?:abstain|desist|hold off|hold back|keep from|shy away|cease|quit \w+ing|resist|leave "
    r"out|omit)\b"
    r"|\bunder no (?:condition|pretext)\b|\bat no (?:point|time)\b|^\W*not (?:a single|one|even one) \w+"
    r"|\? (?:never|no way|absolutely not|not with us|out of the question|forget it)\b|, so (?:don't|do not|never)\W*$"
    r"|\b(?:nobody|no one|no-one) (?!knows|cares|else|really|is|was|has|ever|does|seems|likes|wants|needs|uses|"
    r"says)\w+s\b"
    r"|\b(?:stays?|remains?|to remain|to stay) (?:\w+ )?(?:untouched|unchanged|private|confidential|secret|as "
    r"(?:it|they) "
    r"(?:is|are)|where (?:it|they) (?:is|are))\b"
    r"|\bi (?:can't|cannot|won't|will not|don't want to) (?:have|see|let) you \w+(?:ing)?\b|\bis something (?:we|"
    r"you|i) "
    r"(?:\w+ )?(?:do not|don't|never) (?:do|want)\b|\bgrounds for\b"
)
_ALSO_REQUIRES = re.compile(
    r"\bonly [\w' ]{2,40} (?:may|can|should|is allowed|are allowed)\b|\b(?:may|can|should|must) only (?:be )?\w+"
    r"|\bhabit\b(?: to|.{0,3}of)|\bgoes without saying\b|^\W*(?:please )?mind (?:that|you) \w"
    r"|\b(?:is|are) to be \w|\bsupposed to\b|\b(?:have|need|want|get) to (?:sign off|approve|see|review|check|"
    r"confirm|ok) "
    r"(?:on )?(?:every|each|all|any)\b"
    r"|, (?:always|every time|each time|every single time)\W*$|\byou\b[^.]{2,80}\bevery time\b"
    r"|^\W*(?:(?:and|but|so|also|please|oh|ok)[, ] ?)*before (?:you|any|each|every|anything) [^,]{2,60}, (?!i\b|i'|"
    r"we\b|there|"
    r"it\b|let me|can|could|do you)\w"
    r"|\b(?:that|want|need|expect|ask|like|sure) you (?:always|only|each|to always|to only) \w"
)
_REQUIRES = re.compile(
    _AT_START + r"always (?!been|the|a|was|had|nice|good|happy)\w|\b(?:must|should|shall|may) always\b"
    r"|" + _AT_START + r"(?:make sure|be sure|ensure|see to it|take care|be careful|be aware) \w"
    r"|" + _AT_START + r"only (?:ever )?(?:use|commit|push|deploy|edit|change|touch|write|run|send|answer|reply|read|"
    r"install|merge|work|show|call|log|report|talk|contact|act|do|add|modify|delete|ask|pay|book|order|ship|refund)\b"
    r"|\b" + _SOMEBODY + r" (?:must|shall|has to|have to|needs? to|should)(?: only| all| each| still| also)? "
    r"(?!probably|be (?:nice|great|fun|interesting|easy|hard|done soon|ready soon|fine|ok|okay|good|able|possible)|"
    r"say\b|admit|have "
    r"been|know\b|see\b|talk\b|work\b|help\b|be a |look (?:at|into)\b)\w"
    r"|\b(?:is|are) (?:required|mandatory|compulsory|obligatory|a must)\b|\b(?:requires?|needs?) (?:my|our|the|an?|two|"
    r"explicit|written) (?:\w+ ){0,2}(?:approval|sign-?off|review|permission|consent|reviewers?)\b"
    r"|\b(?:ask|check with|consult|tell|warn|notify|confirm with|wait for|get) (?:me|us|my|our|"
    r"\w+)\b[^.]{0,40}\b(?:first|"
    r"before|approval|permission|ok|okay|go-ahead|sign-?off|every time)\b"
    r"|\bdo(?:n't| not) (?:ever )?forget\b|" + _AT_START + r"never (?:forget|fail)\b"
    r"|^\W*(?:rule|rules|policy|important|very important|critical|remember|reminder|hard rule|ground rules?|constraint|"
    r"requirement|house rules?|golden rule|standing (?:order|rule|instruction)|non-negotiable)s?(?: #?\d+)?(?: of \w+)?"
    r"(?: is| are|:|,| -| \u2013| that)"
    r"|^\W*(?:[\w'-]+ ){0,4}(?:rule|policy|requirement|principle|instruction|condition|convention|practice|standard)s?"
    r"(?: [\w'-]+){0,4}:|\b(?:team|company|house|office|lab|security|our|my) (?:policy|rule|practice|convention|"
    r"standard|"
    r"principle)s?(?: here| is| says| has it| demands)\b"
    r"|\b(?:hard|strict|firm|absolute|basic|core) (?:requirement|rule|condition|constraint|must)\b"
    r"|\b(?:i|we) (?:\w+ )?(?:expect|insist|require|demand)\b|\b(?:i|we)(?:'m| am|'re| are)? (?:count|counting|rely|"
    r"relying) on (?:you|it that)\b|\byou(?:'re| are) (?:to|expected to|required to|obliged to)\b"
    r"|\bit(?:'s| is) (?:\w+ ){0,2}(?:essential|crucial|vital|imperative|important|critical|required|expected|"
    r"mandatory)(?: to \w+| for \w+)? (?:that|to)\b"
    r"|\b(?:needs?|requires?|takes?|subject to|only with|only after|not without|nothing without) (?:my|our|the|an?|two|"
    r"\w+'s|explicit|written|prior|express) (?:\w+ ){0,3}?(?:ok|okay|approval|go-?ahead|sign-?off|permission|consent|"
    r"clearance|green light|blessing|say-?so|confirmation|yes|nod|signature)\b"
    r"|\b(?:clear|run|discuss|agree|check) (?:it|that|this|everything|them|any\w*) (?:with|by|past) \w+\b"
    r"|\b(?:has|have|needs?) to go (?:through|past|via) \w+\b"
    r"|"
    + _STANDING_MARK
    + r"|\b(?:keep in mind|bear in mind|please remember|please note|remember (?:that|to)|for the record)\b"
    r"|^\W*(?:whenever|every time|each time|any time|if you ever) [^.]{3,120}, \w|^\W*treat [^.]{2,80} as \w"
    r"|^\W*(?:please )?keep (?!going|it\b|me (?:posted|updated)|in mind|up\b|calm|trying|an eye|working|at it|digging|"
    r"this in)\w"
    r"|\b(?:all|every|each|any) [\w -]{2,40} (?:needs?|requires?|gets?|goes) \w"
    r"|\bfrom now on\b|\bgoing forward\b|\bi insist\b|\bfor the rest of (?:this|the)\b|必须|必ず"
)
_I_SPEAK = re.compile(
    r"^\W*(?:(?:and|but|so|well|oh|yeah|honestly|sorry|hm+|ah|also|because|since|as) )*(?:i|we|he|she|they|it|that|"
    r"this|"
    r"there|my \w+|the \w+)(?:'ve|'d|'m)? (?:(?!should|must|may|can|shall|will)\w+ )?(?:never (?!want|ever want|again)|"
    r"don't (?!want|use|ever|push|deploy|"
    r"commit|touch|allow|do|store|log|send|merge|share|release|ship)|didn't|wasn't|haven't|hasn't|isn't (?!allowed|to)|"
    r"wouldn't|couldn't|can't (?!exceed|spend|go over|use|push|deploy)|always (?!want|use|need)|must (?:say|admit|"
    r"have)|have "
    r"to (?:say|admit|go|run|leave)|should (?:have|probably|be (?:back|able|fine|ok))|need to (?:think|go|check|see|"
    r"know|understand)|doesn't|don't (?:know|think))"
)
_NEVER_MIND = re.compile(
    r"^\W*(?:oh,? |ok,? |ah,? |actually,? )?(?:never ?mind|no problem|no worries|no thanks|not yet|not really|not sure|"
    r"not bad|no idea|can't wait|why not|not at all|don't worry)\b(?P<rest>.*)"
)


_FORBIDDING = word_set(
    "taboo leave keep unacceptable bounds no-go read didn't aren't shan't isn't n't not don't dont never avoid "
    "refrain stay hands steer stop no mustn't shouldn't can't cannot nobody nothing none forbidden prohibited "
    "banned off off-limits read-only frozen question dealbreaker ruled avoided verboten means won't refuse forbid "
    "object against opposed table option red ban embargo freeze moratorium reserved left abstain desist hold cease "
    "quit "
    "resist omit untouched unchanged private confidential secret grounds thing watch shy condition point time"
)
_REQUIRING = word_set(
    "mandatory policies fail each treat keep now forward insist rest get see non-negotiable standing time ever "
    "reminder constraint requirement requirements constraints mind note record whenever every notify confirm wait "
    "approval forget rule rules policy important critical remember always sure ensure careful care aware only "
    "must shall has have need needs should required compulsory obligatory requires require ask check consult tell "
    "warn before habit goes only supposed fail exception exceptions times costs single matter whatever principle "
    "throughout case cases good further "
    "religiously invariably practice convention standard condition instruction expect demand count rely "
    "you're mind essential crucial vital imperative expected takes subject without clear run discuss agree convention "
    "principles practices number hard strict firm absolute basic core may"
)


def prohibition(said: Sentence) -> list[Made]:
    """A rule that forbids. It comes before the values it may mention."""
    if not (said.words & _FORBIDDING or _is_foreign(said)):
        return []
    if _ALSO_FORBIDS.search(said.low) and not _NEVER_MIND.match(said.low):
        return [Made("rule", order_key(said.text), said.text)]
    if not _FORBIDS.search(said.low):
        return []
    return [Made("rule", order_key(said.text), said.text)] if _is_order(said.low) else []


def rule(said: Sentence) -> list[Made]:
    """A rule that demands."""
    if not (said.words & _REQUIRING or _is_foreign(said)) or _PASSED.search(said.low):
        return []
    if not (_REQUIRES.search(said.low) or _ALSO_REQUIRES.search(said.low)):
        return []
    if _TELLS.match(said.low) and not _MUST.search(said.low):
        return []
    return [Made("rule", order_key(said.text), said.text)] if _is_order(said.low) else []


_TELLS = re.compile(
    r"^\W*(?:(?:and|but|so|well|oh|yeah|honestly|anyway)[, ] ?)*(?:it|that|this|they|he|she|there|somebody|someone|"
    r"people|"
    r"i think|i guess|i suppose)\b(?! is (?:a )?(?:hard|strict|required|essential|crucial|vital|imperative|important|"
    r"mandatory))"
)
_MUST = re.compile(
    r"\b(?:must|shall|needs? to|have to|has to|you|should|required|mandatory)\b(?! (?:do with|be tired|have been|do "
    r"something|have))"
)
_FOREIGN = word_set(
    "niemals keinen darf darfst nicht keine kein verboten ne interdit nunca jamas no non prohibido proibido "
    "vietato jamais"
)


def _is_foreign(said: Sentence) -> bool:
    return not said.low.isascii() or bool(said.words & _FOREIGN)


def _is_order(low: str) -> bool:
    """Whether it is said to somebody, and not told of oneself or in passing."""
    chatter = _NEVER_MIND.match(low)
    if chatter is not None:
        rest = chatter["rest"]
        return _FORBIDS.search(rest) is not None and len(content(rest)) > 1
    return not _I_SPEAK.match(low) or _second_clause(low)


_PASSED = re.compile(r"^\W*(?:i|we|it|they|he|she)(?:'ve)? (?:had|needed|made|was|were|always|thought|just)\b")
_CLAUSE = re.compile(r"(?:[;:\u2013\u2014]|, (?:so|but|and|please|just|therefore|hence)|\bso|\. )\s*")


def _second_clause(low: str) -> bool:
    """Whether an order follows after what somebody told of himself: "I don't trust it, so never run it"."""
    return any(
        (_FORBIDS.search(part) or _REQUIRES.search(part)) and not _I_SPEAK.match(part)
        for part in _CLAUSE.split(low)[1:]
        if part
    )


_WITHDRAWS = re.compile(
    r"\byou (?:may|can|could)(?: (?:now|again|finally|already))* (?!not\b|never\b|only\b|see\b|find\b|tell\b|imagine\b|"
    r"look|"
    r"read\b|ask\b|get\b|have\b|check\b|say\b|guess|assume|think|try\b|be\b|also\b|help\b|always\b|believe|reach|call "
    r"me|choose|pick|use|spend|still|take|do (?:that|it) (?:by|with|in)|start|begin|just|probably|reproduce|"
    r"skip)(?P<act>\w+)"
    r"|\byou (?:may|can) (?:now |again )?(?:use|start|skip|take|call|read|look|begin)\b[^.]{0,60}\b(?:again|now|after "
    r"all)\b"
    r"|\byou can now\b|\byou(?:'re| are) (?:now |hereby |free |again )*(?:allowed|permitted|cleared|free|welcome) to\b"
    r"|" + _AT_START + r"(?:feel free to|go ahead and|it'?s (?:now )?(?:ok|okay|fine|alright) to)\b"
    r"|\b(?:is|are) (?:now |finally )?(?:allowed|permitted|fine|ok|okay|alright)(?: now| again| from now)\b"
    r"|\b(?:is|are) now (?:allowed|permitted|fine|ok|okay)\b"
    r"|\bno longer (?:needs?|has|have|appl\w+|required|necessary|forbidden|off|banned|prohibited|in force|matters?|"
    r"holds?)\b"
    r"|\b(?:you|we) (?:don't|do not|needn't)(?: (?:need|have) to)?\b[^.]{0,80}\b(?:any ?more|any longer|after all|"
    r"now)\b"
    r"|\bno need to\b[^.]{0,80}\b(?:any ?more|any longer|now)\b"
    r"|\b(?:forget|drop|lift|scrap|ignore|disregard|cancel|withdraw|remove|i take back|take back|i'm "
    r"lifting)\b[^.]{0,60}"
    r"\b(?:rule|ban|restriction|freeze|instruction|constraint|requirement|what i said)\b"
    r"|\b(?:rule|ban|restriction|freeze|requirement|embargo)\b[^.]{0,60}\b(?:lifted|over|gone|off the table|"
    r"withdrawn)\b"
)


_FREEING = word_set(
    "take ban freeze restriction rule requirement embargo needn't lifting more any may can could allowed "
    "permitted free cleared welcome ahead ok okay fine alright longer anymore need forget drop lift lifted scrap "
    "ignore disregard cancel withdraw remove"
)


def withdrawal(said: Sentence) -> list[Made]:
    """The end of a rule: an act is free again."""
    if not said.words & _FREEING or len(said.low) > 200 or not _WITHDRAWS.search(said.low) or _BOUNDED.search(said.low):
        return []
    return [Made("rule", order_key(said.text), said.text)]


# Limits: a bound and a number, a date or a sum.

_NUMBER = (
    r"(?:[$€£¥]\s?\d|\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|"
    r"sixty|ninety|hundred|thousand|million|half|zero|single|dozen)\b)"
)
_DATE = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|today|noon|midnight|eod|eow|eom|end of|(?:this|"
    r"next) "
    r"(?:week|month|quarter|year|sprint)|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may \d|june?|july?|"
    r"aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|q[1-4]|christmas|easter|\d{1,4}[-/.:]\d|\d{1,2} "
    r"?(?:am|"
    r"pm|h\b|o'clock)|the \d{1,2}(?:st|nd|rd|th)|launch|release|close of business|cob)\b"
)
_BOUND_WORDS = {
    "max": r"at (?:the )?most|no more than|not more than|up to|max(?:imum|\.)?(?: of)?|no (?:longer|larger|bigger|"
    "higher|later)"
    r" than|(?:must|should|may|can|shall|do|will)(?: not|n't) exceed|(?:can't|cannot|never|not) (?:exceed|go (?:over|"
    r"above|"
    r"beyond|past)|spend more than)|(?:never|not|n't|don't) (?:\w+ ){1,6}?(?:more|longer|larger|bigger|higher|later) "
    r"than|"
    r"(?:never|not|n't|don't) (?:\w+ ){1,5}?(?:over|above|beyond|past|after)|under|below|within|less than|fewer than|"
    r"capped at|limited to|≤|<=|<|stays? under",
    "min": r"at (?:the very )?least|no (?:less|fewer|lower|earlier) than|not (?:less|fewer) than|min(?:imum|\.)?(?: "
    "of)?|"
    r"above|over|more than|≥|>=",
    "by": r"by|before|until|no later than|due(?: on| by| at)?|not later than|deadline(?: is|:)?",
}
_BOUNDED = re.compile(
    rf"\b(?:{_BOUND_WORDS['max']}|{_BOUND_WORDS['min']})\s(?:\w+\s){{0,3}}?{_NUMBER}|[≤≥<>]=?\s?\d"
    rf"|\b(?:by|before|no later than|not later than|until|due(?: on| by| at)?)\s(?:\w+\s){{0,2}}?{_DATE}"
    rf"|{_NUMBER}[^.;]{{0,40}}\b(?:max(?:imum)?|at most|tops|or (?:less|fewer|more|better|under)|minimum|at least|"
    r"limit|cap|"
    r"per (?:second|minute|hour|day|week|month|request|user|call|run)|a (?:day|week|month|minute|hour))\b"
    rf"|\b(?:cap|limit|budget|ceiling|quota|maximum|deadline|minimum|timeout) of (?:\w+ ){{0,2}}?(?:{_NUMBER}|{_DATE})"
    rf"|{_NUMBER}[^.;]{{0,60}}\b(?:that's (?:all|it\b|the (?:max|most|limit|end|ceiling|cap))|(?:is|are) (?:all|"
    rf"the (?:\w+ )?"
    r"(?:most|max\w*|limit|ceiling|cap|top|end|line))|and (?:not (?:a|one|any)|no more|not more)|not a \w+ more|"
    r"and not "
    r"beyond|hard stop|ceiling|upper (?:limit|bound))\b"
    rf"|\b(?:anything|nothing|everything|all) (?:above|over|beyond|past|below|under) (?:\w+ ){{0,2}}?{_NUMBER}"
    rf"|\b(?:stops?|ends?|maxes out|tops out|draw the line) at {_NUMBER}"
    rf"|\bonly (?:\w+ ){{0,3}}{_NUMBER}|\b(?:limit|cap|restrict)(?:ed|ped)? (?:[\w'-]+ ){{1,4}}?(?:to|at) {_NUMBER}"
)
_DIGIT = re.compile(r"\d")
_NUMBERED = re.compile(rf"{_NUMBER}")
_STRONG = re.compile(
    r"\b(?:must|should|shall|have to|has to|need to|needs to|may|can|cannot|can't|don't|do not|never|not|no more than|"
    r"no "
    r"later than|at most|max(?:imum)?|min(?:imum)?|limit(?:ed)?|cap(?:ped)?|budget|deadline|quota|due|keep|stay|spend|"
    r"ceiling|"
    r"allowed|finish|deliver|ship|done|ready|submit|threshold|tops|only|that's it|all|line|more|most|anything|"
    r"nothing|needs|"
    r"end|stop|upper|under|within|exceed)\b"
    r"|^\W*(?:please |and |also |so |but )*(?:use|limit|cap|restrict|retry|try|wait|send|make|run|write|give|get|set|"
    r"answer|"
    r"reply|book|order|buy|pay|return|show|list|fetch|include|respond|complete|have)\b"
)
_TOLD = re.compile(
    r"\b(?:took|was|were|had|did|got|found|saw|showed|returned|spent|used|failed|ran|finished|said|happened|complained|"
    r"dropped|measured|went|came|started|been|there (?:are|is))\b"
    r"|(?<![-\w])(?!limited|capped|allowed|needed|required|permitted|supposed|restricted|bounded|fixed|speed|exceed|"
    r"need|feed)"
    r"\w{3,}ed\b"
)
_NOUNS = (
    r"(?:budget|limit|cap|quota|deadline|timeout|ceiling|threshold|allowance|due date|cutoff|sla|retention|allotment|"
    r"upper bound|lower bound|spending limit)s?"
)
LIMIT_NOUN = re.compile(rf"\b(?:{_NOUNS}|maximum|max|minimum|min)\b")
_NOT_IN_NAME = (
    r"(?!(?:the|our|my|your|a|an|keep|set|make|raise|lower|bump|increase|reduce|change|cut|extend|stay|is|are|was|to|"
    r"and|of|"
    r"under|within|below|in|on|for|with|that|this|new|please|then|have|has|had|exceed|over|above|respect|remember|note|"
    r"hit|use|by|hard|strict|firm|absolute|total|current|actually|now|from|at|must|should|will|may|can|stays?|today|"
    r"per|"
    r"not|no|never|so|but|update|move|let's|can't|cannot|it|we|i|you|went|goes|up|moved|changed)\b)"
)
_NOUN_PHRASE = re.compile(
    rf"(?<![\w'-])(?P<what>(?:{_NOT_IN_NAME}[\w'-]{{1,30}} ){{0,4}}{_NOUNS})\b"
    rf"(?: (?:for|of|on) (?:the |our |all |this )?(?P<of>(?:{_NOT_IN_NAME}(?!\d)[\w-]{{2,30}} ?){{1,3}}))?"
)
_LIMITS = re.compile(
    r"\b(?:limit|cap|restrict) (?!is\b|of\b|for\b|on\b|at\b|to\b|must\b|should\b)[\w' -]{2,40}? (?:to|at)\b"
)
_VERB = re.compile(r"\b(?:limit|cap|restrict)\b")
_UNITS = re.compile(
    r"(?P<money>[$€£¥]|\b(?:dollar|euro|pound|usd|eur|gbp|cent|buck)s?\b)|(?:\d|"
    + _NUMBER
    + r")\s?(?:%|(?P<unit>[a-z]{1,15}))"
)
_BOUND = re.compile("|".join(rf"(?P<{k}>(?<![\w]){{}})".format(f"(?:{v})") for k, v in _BOUND_WORDS.items()))
_AMOUNT = re.compile(rf"[$€£¥]?\d[\w.,:%/-]*|{_NUMBER}|\b(?:dollar|euro|pound|usd|eur|gbp|buck)s?\b|{_DATE}")


_NUMBERS_IN_WORDS = word_set(
    "one two three four five six seven eight nine ten twelve fifteen twenty thirty forty fifty sixty ninety "
    "hundred thousand million half zero single dozen"
)
_DATING = frozenset({"by", "before", "until", "due", "later", "deadline"})


_NAMED_BOUND = re.compile(
    r"\W*(?:(?:please|the|our|set|change|make|raise|lower|bump|now) ){0,3}(?:max|min)\w* [\w -]{2,40}? (?:is|to|=|:|"
    r"should be|must be)\b"
)
_STILL_HOLDS = re.compile(
    r"\b(?:must|should|never|may|cannot|limit|needs? to|has to|have to|keep|at most|no more than|max|cap|budget|"
    r"deadline)\b"
)


def limit(said: Sentence) -> list[Made]:
    text, low = said.text, said.low
    if not (said.words & _DATING or said.words & _NUMBERS_IN_WORDS or _DIGIT.search(low)):
        return []
    if not _BOUNDED.search(low) or not _STRONG.search(low):
        return []
    if _NAMED_BOUND.match(low):
        return []  # "the max batch size is 64" is a name with a value
    if _FORBIDS.search(low) and not _NUMBERED.search(low):
        return []  # "closed until Monday" is a rule for a while
    if (_TOLD.search(low) or _I_SPEAK.match(low)) and not _STILL_HOLDS.search(low):
        return []
    return [Made("limit", limit_key(text), text)]


def limit_key(text: str) -> str:
    """What is bounded, from which side, in which unit: a new number for the same takes its place."""
    low = plain(text)
    if not _LIMITS.search(low) and (called := limit_name(low)) and called not in _NAMELESS:
        return called
    bound = _BOUND.search(low)
    side = (bound.lastgroup or "") if bound else "max"
    unit = next((("money" if m["money"] else m["unit"] or "%") for m in _UNITS.finditer(low)), "")
    rest = " ".join(content(_AMOUNT.sub(" ", _BOUND.sub(" ", _VERB.sub(" ", low)))))
    unit = stem(unit)
    return " ".join(p for p in (side, rest, "" if unit in rest.split() else unit) if p)[:200]


_NAMELESS = frozenset({"limit", "cap", "ceiling", "quota", "upper bound", "lower bound", "threshold"})
"""A limit that has no name goes by what it limits."""


def limit_name(text: str) -> str:
    """What a limit is called, with what it is for; nothing if it has no name."""
    called = _NOUN_PHRASE.search(plain(text))
    if called is None:
        return ""
    return name(called["what"] + (f" for {called['of']}" if called["of"] else ""))
