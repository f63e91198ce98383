"""The house rules of names: modules are nouns, one name means one thing, and nobody reaches into another's privates."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "onefold"
MODULES = sorted(p.relative_to(SOURCE) for p in SOURCE.rglob("*.py") if not p.stem.startswith("__"))
NOUNS = {"encoding", "openviking"}
"""They end like an activity, and are none."""
PARTICIPLES = {
    "apart", "beside", "brought", "done", "found", "given", "gone", "held", "kept", "known", "left", "made", "once",
    "said", "sent", "taken", "told", "written",
}  # fmt: skip
FACES = {"aio", "cli"}
"""The async face and the commands are named for what they stand for."""
TUPLES = {"_replace", "_asdict", "_fields", "_make"}
OUTSIDE = {"_exit", "_storage_update_marker"}
"""Not ours: `os._exit`, and what a session of the Google Agent Development Kit has."""


def test_no_module_is_named_after_an_activity_or_by_a_participle() -> None:
    last = {module: module.stem.split("_")[-1] for module in MODULES}

    assert [
        str(module)
        for module, word in last.items()
        if word not in NOUNS and (re.search(r"(ing|ed)$", word) or word in PARTICIPLES)
    ] == []


def test_a_modules_name_is_unique_within_two_levels_of_its_path() -> None:
    near: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for module in MODULES:
        if not FACES.intersection(module.parts):
            for level in {module.parent, module.parent.parent}:
                near[level, module.stem].append(str(module))

    # Stores keep one protocol, and so do the checks of other programs' stores.
    siblings = {Path("storage"), Path("foreign")}
    assert [m for (level, _), m in near.items() if len({*m}) > 1 and level not in siblings] == []


def test_no_public_class_name_means_two_things() -> None:
    named: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        if "aio" not in module.parts:
            named_here = (n for n in _tree(module).body if isinstance(n, ast.ClassDef) and not n.name.startswith("_"))
            for node in named_here:
                named[node.name].append(str(module))

    assert {name: modules for name, modules in named.items() if len(modules) > 1} == {}


def test_no_module_reaches_into_anothers_private_attributes() -> None:
    reached = []
    for module in MODULES:
        tree = _tree(module)
        own = _names_of(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onefold"):
                reached += [f"{module}:{node.lineno} {a.name}" for a in node.names if re.match(r"_[^_]", a.name)]
            if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr) and node.attr not in own:
                reached.append(f"{module}:{node.lineno} {ast.unparse(node)}")

    assert reached == []


def _tree(module: Path) -> ast.Module:
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def _names_of(tree: ast.Module) -> set[str]:
    """What a module defines or has of itself, and the private names of others that are no secret."""
    own = TUPLES | OUTSIDE
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Constant(value=str(name)):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                own.add(name)
            case _:
                pass
    return own
