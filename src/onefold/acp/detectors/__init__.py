"""Detectors: one for each family of agents, each a pure function from frames and lines to observations.

They only say what they saw. What of it is one compaction, and whether it counts, is decided in `compaction_correlator`.
"""

from onefold.acp.detectors.acp_updates import COMPACTION_CAPABILITY, as_tool_call
from onefold.acp.detectors.conversation_state import asks_to_compact, may_compact, names_compaction, of_another
from onefold.acp.detectors.observation import STRENGTHS, Event, FromAgent, Observation, ToAgent
from onefold.acp.detectors.registry import DetectorState, Family, command, family, see, watch
from onefold.acp.line_reader import StderrLine

__all__ = [
    "COMPACTION_CAPABILITY",
    "STRENGTHS",
    "DetectorState",
    "Event",
    "Family",
    "FromAgent",
    "Observation",
    "StderrLine",
    "ToAgent",
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
