"""Joins the page's ES modules into one script, so that a browser asks once. Nobody has to build anything.

It knows what the page's own modules use, and rejects everything else when the server starts: imports by name or as a
namespace from files in the same folder, exports of functions, classes and constants, no cycles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*|\bimport\(", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """One script that does what `entry` does with all that it imports. Each module stays in a scope of its own."""
    joined = "".join(_wrapped(name, modules[name]) for name in _order(modules, entry))
    return f'"use strict";\n{{\n{joined}}}\n'


def _order(modules: Mapping[str, str], entry: str) -> list[str]:
    """What a module imports comes before it."""
    order: list[str] = []
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name not in modules:
            raise ValueError(f"{under_way[-1]} imports {name}, which is not there")
        if name in under_way:
            raise ValueError(f"{name} imports itself, by way of {', '.join(under_way)}")
        under_way.append(name)
        for imported in _IMPORT.finditer(modules[name]):
            visit(imported[3])
        order.append(under_way.pop())

    visit(entry)
    return order


def _wrapped(name: str, text: str) -> str:
    exports = [found[2] for found in _EXPORT.finditer(text)]
    text = _EXPORT.sub(r"\1 \2", _IMPORT.sub(_bound, text))
    if (other := _OTHER.search(text)) is not None:
        raise ValueError(f"{name} has {other[0]!r}, which cannot be joined with other modules")
    return f"// {name}\nconst {_variable(name)} = (() => {{\n{text}\nreturn {{ {', '.join(exports)} }};\n}})();\n"


def _bound(found: re.Match[str]) -> str:
    names, whole, module = found.groups()
    kept = whole or "{" + re.sub(r"(\w+) as (\w+)", r"\1: \2", names) + "}"
    return f"const {kept} = {_variable(module)};"


def _variable(module: str) -> str:
    return "$" + re.sub(r"\W", "_", module)
