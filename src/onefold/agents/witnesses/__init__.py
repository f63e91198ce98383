"""Detectors: one for each family of agents, each a pure function from frames and lines to observations.

They only say what they saw. What of it is one compaction, and whether it counts, is decided in `joining`.
"""

from onefold.agents.wire import Line
from onefold.agents.witnesses.families import Family, Watch, command, family, see, watch
from onefold.agents.witnesses.observing import STRENGTHS, Event, Heard, Observation, Sent
from onefold.agents.witnesses.protocol import COMPACTION_CAPABILITY, as_tool_call
from onefold.agents.witnesses.traffic import asks_to_compact, may_compact, names_compaction, of_another

__all__ = [
    "COMPACTION_CAPABILITY",
    "STRENGTHS",
    "Event",
    "Family",
    "Heard",
    "Line",
    "Observation",
    "Sent",
    "Watch",
    "as_tool_call",
    "asks_to_compact",
    "command",
    "family",
    "may_compact",
    "names_compaction",
    "of_another",
    "see",
    "watch",
]
