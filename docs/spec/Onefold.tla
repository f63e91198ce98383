------------------------------- MODULE Onefold -------------------------------
(* One session, and any number of processes that compact it.                *)
(*                                                                          *)
(* Each action below is one transaction of the contract.  Between two of    *)
(* them anything may happen: a process may crash (it forgets what it        *)
(* holds), or be stopped and go on much later (it does not forget).  A      *)
(* lease may run out at any moment, early or late: time is never trusted.   *)
(*                                                                          *)
(* Off names guards that are taken away.  {} is the design; with one or     *)
(* several of them off, the checker has to find what goes wrong, or the     *)
(* guard is not needed.                                                     *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS Workers,          \* processes that compact
          MaxMessages, MaxSegments, MaxCompactions, MaxAttempts,
          Quotable,         \* messages that somebody may think of to quote
          People,           \* what is done in this run, of {"cancel", "rewind", "restore", "unfold", "mask", "draft", "adopt"}
          Off               \* guards that are taken away

VARIABLES last,             \* messages 1..last were acknowledged
          segments,         \* every segment ever opened; the newest is the head
          compactions,      \* every compaction ever asked for
          fence,            \* the number of the newest claim
          holds,            \* what each process believes that it holds
          evicted,          \* who ended somebody else's live attempt: "late", "mask", "draft", "adopt"
          draft,            \* the newest draft of another summary, and the head that it was made for
          item              \* what a provider made last: what it knows, and up to which message it was sent any

beside == <<evicted, draft, item>>                                       \* what most actions leave alone
vars == <<last, segments, compactions, fence, holds, beside>>

Guard(g)  == g \notin Off
Nothing   == [compaction |-> 0, gone |-> FALSE]
Gone      == [compaction |-> 0, gone |-> TRUE]
Holding(w) == holds[w].compaction # 0
Survivor  == CHOOSE w \in Workers : TRUE
OpenState == {"requested", "running"}
Newest    == Len(segments)
Now       == segments[Newest]
Open      == {c \in DOMAIN compactions : compactions[c].state \in OpenState}
Before(cut) == 1..(cut - 1)

(* A segment is a view of the session: from `cut` on everything is verbatim *)
(* but for what is `hidden`; for what lies before it stands a summary, of   *)
(* which all that matters here is which messages it `knows`, and beside it  *)
(* the messages that it `quotes`, by their numbers, and those that are      *)
(* `kept` since no summary knows them.  What is `masked` is shown as one    *)
(* line.  `made` is the segment that a compaction opened with  *)
(* this summary, 0 if there is none.                                        *)
First == [base |-> 0, cut |-> 1, hidden |-> {}, knows |-> {}, quotes |-> {}, kept |-> {}, masked |-> {}, made |-> 0]

(* The compactions in force in a segment: the one that made its summary,    *)
(* the one that made the summary which that was made of, and so on.         *)
RECURSIVE Line(_)
Line(s) == LET n == segments[s].made IN IF n = 0 THEN {} ELSE {n} \cup Line(segments[n].base)

(* Of what was masked, a view has what is verbatim in it.                   *)
Masks(masked, cut, hidden) ==
  IF Guard("masks are of what is shown") THEN {m \in masked : m >= cut} \ hidden ELSE masked

Init == /\ last = 0
        /\ segments = <<First>>
        /\ compactions = <<>>
        /\ fence = 0
        /\ holds = [w \in Workers |-> Nothing]
        /\ evicted = {}
        /\ draft = [head |-> 0]
        /\ item = [upto |-> 0]

------------------------------------------------------------------------------
(* Appends never wait for anything.                                         *)
AppendMessage == /\ last < MaxMessages
                 /\ last' = last + 1
                 /\ UNCHANGED <<segments, compactions, fence, holds, beside>>

(* The one way in which a boundary moves.  Whatever is open was planned on  *)
(* another segment then, and is settled in the same transaction.            *)
OpenSegment(new, settled) ==
  /\ Len(segments) < MaxSegments
  /\ segments' = Append(segments, new)
  /\ compactions' = IF Guard("moved head settles")
                    THEN [c \in DOMAIN settled |->
                            IF settled[c].state \in OpenState THEN [settled[c] EXCEPT !.state = "superseded"]
                                                              ELSE settled[c]]
                    ELSE settled

(* Asked for by somebody who measured segment `seen`, perhaps long ago.     *)
(* With one open it is joined, which changes nothing here.                  *)
Request(seen) ==
  /\ seen \in 1..Newest
  /\ Guard("request names its base") => seen = Newest
  /\ Guard("one open") => Open = {}
  /\ Len(compactions) < MaxCompactions
  /\ compactions' = Append(compactions, [base |-> seen, state |-> "requested", attempts |-> 0, fence |-> 0,
                                         leased |-> FALSE, alive |-> FALSE])
  /\ UNCHANGED <<last, segments, fence, holds, beside>>

(* A claim fixes what may be summarised: all there is now, and no more.     *)
(* What is masked is read whole, and so is what was kept unread.            *)
Claim(w, c) ==
  LET it == compactions[c]  base == segments[it.base]
      seen == (((base.cut..last) \ base.hidden) \ (IF Guard("masked is read whole") THEN {} ELSE base.masked))
              \cup (IF Guard("what is kept is read") THEN base.kept ELSE {}) IN
  /\ c \in Open /\ ~it.leased /\ it.attempts < MaxAttempts /\ holds[w] # Gone
  /\ fence' = fence + 1
  /\ compactions' = [compactions EXCEPT ![c] = [it EXCEPT !.state = "running", !.attempts = @ + 1, !.fence = fence + 1,
                                                         !.leased = TRUE, !.alive = TRUE]]
  /\ holds' = [holds EXCEPT ![w] = [compaction |-> c, fence |-> fence + 1, base |-> it.base, upto |-> last, gone |-> FALSE,
                                    knows |-> IF Guard("summary before is carried") THEN base.knows \cup seen ELSE seen]]
  /\ UNCHANGED <<last, segments, beside>>

(* The first valid summary wins.  Nobody looks at a lease.  What it quotes  *)
(* may be anything somebody thought of: the transaction looks.              *)
Commit(w, cut, quotes) ==
  LET mine == holds[w]  it == compactions[mine.compaction] IN
  /\ Holding(w)
  /\ Guard("still open") => it.state \in OpenState
  /\ Guard("base is the head") => mine.base = Newest
  /\ Guard("base is a unique key") => \A s \in DOMAIN segments : segments[s].base # mine.base
  /\ segments[mine.base].cut < cut
  /\ cut <= (IF Guard("range fixed at claim") THEN mine.upto ELSE last) + 1
  /\ quotes \subseteq 1..last
  /\ Guard("quotes are looked at") => quotes \subseteq Before(cut) \ segments[mine.base].hidden
  /\ OpenSegment([base |-> mine.base, cut |-> cut, hidden |-> segments[mine.base].hidden,
                  knows |-> mine.knows \cap Before(cut), quotes |-> quotes, kept |-> {}, made |-> Newest + 1,
                  masked |-> Masks(segments[mine.base].masked, cut, {})],
                 [compactions EXCEPT ![mine.compaction].state = "committed"])
  /\ UNCHANGED <<last, fence, holds, beside>>                      \* it keeps its claim, and may try again

(* An attempt ends without a summary: it failed, or there was nothing to    *)
(* compact, or its process gives it back, which is the last it does and     *)
(* counts as no attempt.  One process at least lives on.                    *)
EndsAttempt(w, ended) ==
  LET mine == holds[w]  it == compactions[mine.compaction] IN
  /\ Holding(w) /\ it.state = "running"
  /\ Guard("fence on fail") => it.fence = mine.fence
  /\ compactions' = [compactions EXCEPT ![mine.compaction] = [ended EXCEPT !.leased = FALSE, !.alive = FALSE]]
  /\ evicted' = evicted \cup (IF it.fence # mine.fence /\ it.leased THEN {"late"} ELSE {})
  /\ UNCHANGED <<last, segments, fence, draft, item>>

Held(w)     == compactions[holds[w].compaction]
Fail(w)     == /\ Holding(w) /\ UNCHANGED holds
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = IF Held(w).attempts < MaxAttempts THEN "requested" ELSE "failed"])
Skip(w)     == /\ Holding(w) /\ UNCHANGED holds
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = "skipped"])
HandBack(w) == /\ Holding(w) /\ w # Survivor /\ holds' = [holds EXCEPT ![w] = Gone]
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = "requested", !.attempts = @ - 1])

Crash(w) == /\ Holding(w)
            /\ holds' = [holds EXCEPT ![w] = Nothing]
            /\ UNCHANGED <<last, segments, compactions, fence, beside>>

------------------------------------------------------------------------------
(* Time.  A lease runs out, or is renewed, whenever it likes; but no        *)
(* renewal stretches the longest life of an attempt.                        *)
LeaseOut(c)  == /\ c \in Open /\ compactions[c].leased
                /\ compactions' = [compactions EXCEPT ![c].leased = FALSE]
                /\ UNCHANGED <<last, segments, fence, holds, beside>>
Renew(w)     == LET mine == holds[w]  it == compactions[mine.compaction] IN
                /\ Holding(w) /\ it.state = "running" /\ it.fence = mine.fence /\ ~it.leased
                /\ Guard("longest life") => it.alive
                /\ compactions' = [compactions EXCEPT ![mine.compaction].leased = TRUE]
                /\ UNCHANGED <<last, segments, fence, holds, beside>>
LifeOver(c)  == /\ c \in Open /\ compactions[c].alive
                /\ compactions' = [compactions EXCEPT ![c].alive = FALSE, ![c].leased = @ /\ ~Guard("longest life")]
                /\ UNCHANGED <<last, segments, fence, holds, beside>>
(* Whoever meets the dead last attempt settles it.                          *)
SettleDead(c) == LET it == compactions[c] IN
                /\ Guard("dead last attempt is settled")
                /\ c \in Open /\ it.state = "running" /\ ~it.leased /\ it.attempts = MaxAttempts
                /\ compactions' = [compactions EXCEPT ![c].state = "failed"]
                /\ UNCHANGED <<last, segments, fence, holds, beside>>

------------------------------------------------------------------------------
(* People.                                                                  *)
Cancel(c) == /\ "cancel" \in People /\ c \in Open
             /\ compactions' = [compactions EXCEPT ![c].state = "cancelled"]
             /\ UNCHANGED <<last, segments, fence, holds, beside>>

(* A boundary fits a view if both hide the same messages before its cut.    *)
Fits(s, hidden) == segments[s].hidden \cap Before(segments[s].cut) = hidden \cap Before(segments[s].cut)
Highest(S) == CHOOSE s \in S : \A t \in S : t <= s

(* An older boundary, under what is hidden now.                             *)
Again(old, hidden) ==
  [old EXCEPT !.base = Newest, !.hidden = hidden,
              !.masked = Masks(@ \cup (IF Guard("masks are carried") THEN Now.masked ELSE {}), old.cut, hidden)]
NewestFitting(before, hidden) ==
  segments[Highest({s \in 1..(before - 1) : Guard("boundary knows nothing hidden") => Fits(s, hidden)})]

Rewind(to) ==
  LET hidden == Now.hidden \cup ((to + 1)..last) IN
  /\ "rewind" \in People /\ to < last /\ hidden # Now.hidden
  /\ OpenSegment(Again(NewestFitting(Newest + 1, hidden), hidden), compactions)
  /\ UNCHANGED <<last, fence, holds, beside>>

(* Redo, and going back to any older segment: its whole view.               *)
Restore(s) ==
  /\ "restore" \in People /\ s \in 1..Newest
  /\ OpenSegment([segments[s] EXCEPT !.base = Newest], compactions)
  /\ UNCHANGED <<last, fence, holds, beside>>

(* A compaction in force is taken back, with those that were made of it.    *)
(* What was said since stays, and what was taken back since stays hidden.   *)
Unfold(n) ==
  LET old == NewestFitting(n, Now.hidden) IN
  /\ "unfold" \in People /\ n \in Line(Newest)
  /\ OpenSegment(Again(old, IF Guard("unfold keeps what is hidden") THEN Now.hidden ELSE old.hidden), compactions)
  /\ UNCHANGED <<last, fence, holds, beside>>

(* To the boundary of a compaction again that stands for more than what is  *)
(* in force, or was made of it.                                             *)
Refold(s) ==
  /\ "unfold" \in People /\ s \in 1..Newest /\ segments[s].made = s
  /\ segments[s].cut > Now.cut \/ Now.made \in Line(s) \ {s}
  /\ Guard("refold fits") => Fits(s, Now.hidden)
  /\ OpenSegment(Again(segments[s], Now.hidden), compactions)
  /\ UNCHANGED <<last, fence, holds, beside>>

------------------------------------------------------------------------------
(* What opens a segment without a claim leaves alone a compaction that      *)
(* somebody holds.  One that waits for somebody it supersedes.              *)
Live == {c \in Open : compactions[c].leased}
Spares(guard, who) == /\ Guard(guard) => Live = {}
                      /\ evicted' = evicted \cup (IF Live = {} THEN {} ELSE {who})

(* Results are shown as one line each, chosen by somebody who looked at     *)
(* segment `seen`, perhaps long ago.                                        *)
Mask(seen, M) ==
  /\ "mask" \in People /\ seen \in 1..Newest
  /\ M # {} /\ M \subseteq ((segments[seen].cut..last) \ segments[seen].hidden) \ segments[seen].masked
  /\ Guard("mask names its head") => seen = Newest
  /\ Spares("mask spares the held", "mask")
  /\ OpenSegment([Now EXCEPT !.base = Newest, !.masked = @ \cup M], compactions)
  /\ UNCHANGED <<last, fence, holds, draft, item>>

(* A mask is taken back like a compaction.                                  *)
Unmask(M) == /\ "mask" \in People /\ "unfold" \in People /\ M # {} /\ M \subseteq Now.masked
             /\ OpenSegment([Now EXCEPT !.base = Newest, !.masked = @ \ M], compactions)
             /\ UNCHANGED <<last, fence, holds, beside>>

(* Summarising again: the summary in force is made once more, of what it    *)
(* was made of.  It is a draft until somebody says so, perhaps much later.  *)
(* Of all summaries it alone stands at the cut of the one before it.        *)
Draft ==
  LET of == {n \in Line(Newest) : segments[segments[n].base].cut < Now.cut}
      base == segments[segments[Highest(of)].base] IN
  /\ "draft" \in People /\ of # {}
  /\ draft' = [head |-> Newest, knows |-> base.knows \cup base.kept \cup ((base.cut..(Now.cut - 1)) \ Now.hidden)]
  /\ UNCHANGED <<last, segments, compactions, fence, holds, evicted, item>>

(* Nothing but masks came since a segment.                                  *)
OnlyMasked(s) == \A t \in s..Newest : [segments[t] EXCEPT !.base = 0, !.masked = {}] = [segments[s] EXCEPT !.base = 0, !.masked = {}]

CommitDraft ==
  /\ draft.head # 0
  /\ Guard("draft names its head") => OnlyMasked(draft.head)
  /\ Spares("draft spares the held", "draft")
  /\ OpenSegment([Now EXCEPT !.base = Newest, !.knows = draft.knows, !.made = Newest + 1], compactions)
  /\ UNCHANGED <<last, fence, holds, draft, item>>

(* A provider makes something of all that it was sent, without the messages *)
(* M, and is asked by nobody here.  It may be adopted much later.           *)
Provide(M) ==
  LET sent == ((Now.cut..last) \ Now.hidden) \ M IN
  /\ "adopt" \in People /\ M \subseteq (Now.cut..last) \ Now.hidden /\ sent # {}
  /\ item' = [upto |-> last, knows |-> Now.knows \cup Now.kept \cup sent]
  /\ UNCHANGED <<last, segments, compactions, fence, holds, evicted, draft>>

(* What it covers is judged where it is adopted, on whatever head that is:  *)
(* it stands for nothing that was taken back since, and what it does not    *)
(* cover is kept.  Where only a summary tells of that, it is refused.       *)
Adopt ==
  LET cut == item.upto + 1  left == (Before(cut) \ Now.hidden) \ item.knows IN
  /\ item.upto # 0 /\ cut >= Now.cut
  /\ Guard("item covers what is in view") => item.knows \cap Now.hidden = {}
  /\ left \cap Before(Now.cut) \subseteq Now.kept
  /\ Spares("item spares the held", "adopt")
  /\ OpenSegment([Now EXCEPT !.base = Newest, !.cut = cut, !.knows = item.knows, !.quotes = {}, !.made = Newest + 1,
                             !.kept = IF Guard("what is not covered is kept") THEN left ELSE {},
                             !.masked = Masks(@, cut, {})], compactions)
  /\ UNCHANGED <<last, fence, holds, draft, item>>

------------------------------------------------------------------------------
Next == \/ AppendMessage
        \/ \E s \in 1..MaxSegments : Request(s) \/ Restore(s) \/ Unfold(s) \/ Refold(s)
        \/ \E M \in SUBSET (1..MaxMessages) : Unmask(M) \/ \E s \in 1..MaxSegments : Mask(s, M)
        \/ Draft \/ CommitDraft
        \/ Adopt \/ \E M \in SUBSET (1..MaxMessages) : Provide(M)
        \/ \E m \in 0..MaxMessages : Rewind(m)
        \/ \E c \in 1..MaxCompactions : LeaseOut(c) \/ LifeOver(c) \/ SettleDead(c) \/ Cancel(c)
        \/ \E w \in Workers : \/ Fail(w) \/ Skip(w) \/ HandBack(w) \/ Crash(w) \/ Renew(w)
                              \/ \E c \in DOMAIN compactions : Claim(w, c)
                              \/ \E cut \in 1..(MaxMessages + 1), quotes \in SUBSET Quotable :
                                   Commit(w, cut, quotes)

(* Time passes, and one process lives.  Nothing says that any summary is    *)
(* ever finished: every attempt may crash or hang.                          *)
Fair == /\ \A c \in 1..MaxCompactions : WF_vars(LifeOver(c)) /\ WF_vars(SettleDead(c))
        /\ \A c \in 1..MaxCompactions : WF_vars(\E w \in Workers : c \in DOMAIN compactions /\ Claim(w, c))

Spec == Init /\ [][Next]_vars /\ Fair

------------------------------------------------------------------------------
OneSuccessor == \A s, t \in DOMAIN segments : s # t => segments[s].base # segments[t].base
OneOpen      == Cardinality(Open) <= 1
OpenOnHead   == \A c \in Open : compactions[c].base = Newest
Told(s)      == segments[s].knows \cup segments[s].quotes \cup segments[s].kept    \* of what lies before its cut
NothingLost  == \A m \in (1..last) \ Now.hidden : m >= Now.cut \/ m \in Told(Newest)
NoGhost      == Told(Newest) \cap Now.hidden = {}
ToldOnce     == Told(Newest) \subseteq Before(Now.cut)
MasksShown   == Now.masked \subseteq (Now.cut..last) \ Now.hidden
BaseFits     == \A n \in Line(Newest) : Fits(segments[n].base, Now.hidden)
NoEviction   == "late" \notin evicted
Spared       == evicted \cap {"mask", "draft", "adopt"} = {}
FinalStays   == [][\A c \in DOMAIN compactions :
                     compactions[c].state \notin OpenState => compactions'[c].state = compactions[c].state]_vars
Restores     == \E s \in 1..MaxSegments : Restore(s)                 \* the one way to show what was hidden
HiddenStays  == [][Now.hidden \subseteq Now'.hidden \/ Restores]_vars
MasksStay    == [][\/ Masks(Now.masked, Now'.cut, Now'.hidden) \subseteq Now'.masked
                   \/ Restores \/ Unmask(Now.masked \ Now'.masked)]_vars
EveryEnds    == \A c \in 1..MaxCompactions : (c \in Open) ~> (c \in DOMAIN compactions /\ c \notin Open)
==============================================================================
