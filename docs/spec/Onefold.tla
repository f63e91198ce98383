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
          People,           \* what people do in this run: a subset of {"cancel", "rewind", "restore"}
          Off               \* guards that are taken away

VARIABLES last,             \* messages 1..last were acknowledged
          segments,         \* every segment ever opened; the newest is the head
          compactions,      \* every compaction ever asked for
          fence,            \* the number of the newest claim
          holds,            \* what each process believes that it holds
          evicted           \* a live attempt was ended by somebody who had lost his own

vars == <<last, segments, compactions, fence, holds, evicted>>

Guard(g)  == g \notin Off
Nothing   == [compaction |-> 0, gone |-> FALSE]
Gone      == [compaction |-> 0, gone |-> TRUE]
Holding(w) == holds[w].compaction # 0
Survivor  == CHOOSE w \in Workers : TRUE
OpenState == {"requested", "running"}
Newest    == Len(segments)
Open      == {c \in DOMAIN compactions : compactions[c].state \in OpenState}
Before(cut) == 1..(cut - 1)

(* A segment is a view of the session: from `cut` on everything is verbatim *)
(* but for what is `hidden`; for what lies before it stands a summary, of   *)
(* which all that matters here is which messages it `knows`, and beside it  *)
(* the messages that it `quotes`, by their numbers.                         *)
First == [base |-> 0, cut |-> 1, hidden |-> {}, knows |-> {}, quotes |-> {}]

Init == /\ last = 0
        /\ segments = <<First>>
        /\ compactions = <<>>
        /\ fence = 0
        /\ holds = [w \in Workers |-> Nothing]
        /\ evicted = FALSE

------------------------------------------------------------------------------
(* Appends never wait for anything.                                         *)
AppendMessage == /\ last < MaxMessages
                 /\ last' = last + 1
                 /\ UNCHANGED <<segments, compactions, fence, holds, evicted>>

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
  /\ UNCHANGED <<last, segments, fence, holds, evicted>>

(* A claim fixes what may be summarised: all there is now, and no more.     *)
Claim(w, c) ==
  LET it == compactions[c]  base == segments[it.base]  seen == (base.cut..last) \ base.hidden IN
  /\ c \in Open /\ ~it.leased /\ it.attempts < MaxAttempts /\ holds[w] # Gone
  /\ fence' = fence + 1
  /\ compactions' = [compactions EXCEPT ![c] = [it EXCEPT !.state = "running", !.attempts = @ + 1, !.fence = fence + 1,
                                                         !.leased = TRUE, !.alive = TRUE]]
  /\ holds' = [holds EXCEPT ![w] = [compaction |-> c, fence |-> fence + 1, base |-> it.base, upto |-> last, gone |-> FALSE,
                                    knows |-> IF Guard("summary before is carried") THEN base.knows \cup seen ELSE seen]]
  /\ UNCHANGED <<last, segments, evicted>>

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
                  knows |-> mine.knows \cap Before(cut), quotes |-> quotes],
                 [compactions EXCEPT ![mine.compaction].state = "committed"])
  /\ UNCHANGED <<last, fence, holds, evicted>>                      \* it keeps its claim, and may try again

(* An attempt ends without a summary: it failed, or there was nothing to    *)
(* compact, or its process gives it back, which is the last it does and     *)
(* counts as no attempt.  One process at least lives on.                    *)
EndsAttempt(w, ended) ==
  LET mine == holds[w]  it == compactions[mine.compaction] IN
  /\ Holding(w) /\ it.state = "running"
  /\ Guard("fence on fail") => it.fence = mine.fence
  /\ compactions' = [compactions EXCEPT ![mine.compaction] = [ended EXCEPT !.leased = FALSE, !.alive = FALSE]]
  /\ evicted' = (evicted \/ (it.fence # mine.fence /\ it.leased))
  /\ UNCHANGED <<last, segments, fence>>

Held(w)     == compactions[holds[w].compaction]
Fail(w)     == /\ Holding(w) /\ UNCHANGED holds
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = IF Held(w).attempts < MaxAttempts THEN "requested" ELSE "failed"])
Skip(w)     == /\ Holding(w) /\ UNCHANGED holds
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = "skipped"])
HandBack(w) == /\ Holding(w) /\ w # Survivor /\ holds' = [holds EXCEPT ![w] = Gone]
               /\ EndsAttempt(w, [Held(w) EXCEPT !.state = "requested", !.attempts = @ - 1])

Crash(w) == /\ Holding(w)
            /\ holds' = [holds EXCEPT ![w] = Nothing]
            /\ UNCHANGED <<last, segments, compactions, fence, evicted>>

------------------------------------------------------------------------------
(* Time.  A lease runs out, or is renewed, whenever it likes; but no        *)
(* renewal stretches the longest life of an attempt.                        *)
LeaseOut(c)  == /\ c \in Open /\ compactions[c].leased
                /\ compactions' = [compactions EXCEPT ![c].leased = FALSE]
                /\ UNCHANGED <<last, segments, fence, holds, evicted>>
Renew(w)     == LET mine == holds[w]  it == compactions[mine.compaction] IN
                /\ Holding(w) /\ it.state = "running" /\ it.fence = mine.fence /\ ~it.leased
                /\ Guard("longest life") => it.alive
                /\ compactions' = [compactions EXCEPT ![mine.compaction].leased = TRUE]
                /\ UNCHANGED <<last, segments, fence, holds, evicted>>
LifeOver(c)  == /\ c \in Open /\ compactions[c].alive
                /\ compactions' = [compactions EXCEPT ![c].alive = FALSE, ![c].leased = @ /\ ~Guard("longest life")]
                /\ UNCHANGED <<last, segments, fence, holds, evicted>>
(* Whoever meets the dead last attempt settles it.                          *)
SettleDead(c) == LET it == compactions[c] IN
                /\ Guard("dead last attempt is settled")
                /\ c \in Open /\ it.state = "running" /\ ~it.leased /\ it.attempts = MaxAttempts
                /\ compactions' = [compactions EXCEPT ![c].state = "failed"]
                /\ UNCHANGED <<last, segments, fence, holds, evicted>>

------------------------------------------------------------------------------
(* People.                                                                  *)
Cancel(c) == /\ "cancel" \in People /\ c \in Open
             /\ compactions' = [compactions EXCEPT ![c].state = "cancelled"]
             /\ UNCHANGED <<last, segments, fence, holds, evicted>>

(* A boundary fits a view if both hide the same messages before its cut.    *)
Fits(s, hidden) == segments[s].hidden \cap Before(segments[s].cut) = hidden \cap Before(segments[s].cut)
Highest(S) == CHOOSE s \in S : \A t \in S : t <= s

Rewind(to) ==
  LET hidden == segments[Newest].hidden \cup ((to + 1)..last)
      fits == {s \in 1..Newest : Guard("boundary knows nothing hidden") => Fits(s, hidden)}
      old == segments[Highest(fits)] IN
  /\ "rewind" \in People /\ to < last /\ hidden # segments[Newest].hidden
  /\ OpenSegment([base |-> Newest, cut |-> old.cut, hidden |-> hidden, knows |-> old.knows,
                  quotes |-> old.quotes], compactions)
  /\ UNCHANGED <<last, fence, holds, evicted>>

(* Redo, and going back to any older segment: its whole view.               *)
Restore(s) ==
  /\ "restore" \in People /\ s \in 1..Newest
  /\ OpenSegment([segments[s] EXCEPT !.base = Newest], compactions)
  /\ UNCHANGED <<last, fence, holds, evicted>>

------------------------------------------------------------------------------
Next == \/ AppendMessage
        \/ \E s \in 1..MaxSegments : Request(s) \/ Restore(s)
        \/ \E m \in 0..MaxMessages : Rewind(m)
        \/ \E c \in 1..MaxCompactions : LeaseOut(c) \/ LifeOver(c) \/ SettleDead(c) \/ Cancel(c)
        \/ \E w \in Workers : \/ Fail(w) \/ Skip(w) \/ HandBack(w) \/ Crash(w) \/ Renew(w)
                              \/ \E c \in DOMAIN compactions : Claim(w, c)
                              \/ \E cut \in 1..(MaxMessages + 1), quotes \in SUBSET (1..MaxMessages) :
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
Told(s)      == segments[s].knows \cup segments[s].quotes            \* of what lies before its cut
NothingLost  == \A m \in (1..last) \ segments[Newest].hidden : m >= segments[Newest].cut \/ m \in Told(Newest)
NoGhost      == Told(Newest) \cap segments[Newest].hidden = {}
ToldOnce     == Told(Newest) \subseteq Before(segments[Newest].cut)
NoEviction   == ~evicted
FinalStays   == [][\A c \in DOMAIN compactions :
                     compactions[c].state \notin OpenState => compactions'[c].state = compactions[c].state]_vars
EveryEnds    == \A c \in 1..MaxCompactions : (c \in Open) ~> (c \in DOMAIN compactions /\ c \notin Open)
==============================================================================
