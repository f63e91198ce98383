"""Modules joined to one script: each in its own scope, in the order in which they need each other."""

from __future__ import annotations

import pytest

from onefold.server.module_bundle import bundle

MODULES = {
    "app.js": 'import { twice as two } from "./math.js";\nimport * as words from "./words.js";\n'
    "const local = 1;\nconsole.log(words.say(two(21)), local);",
    "math.js": "const local = 2;\nexport const twice = (n) => n * local;",
    "words.js": 'import { twice } from "./math.js";\nexport function say(n) {\n  return `${n} ${twice(1)}`;\n}\n'
    "export async function later() {}\nexport class Word {}",
}


def test_each_module_comes_once_and_after_what_it_imports() -> None:
    joined = bundle(MODULES, "app.js")

    at = [joined.index(f"// {name}\n") for name in ("math.js", "words.js", "app.js")]
    assert at == sorted(at)
    assert joined.count("// math.js") == 1
    assert "export" not in joined
    assert "return { say, later, Word };" in joined


@pytest.mark.parametrize(("text", "why"), [
    ('import { x } from "./nowhere.js";', "is not there"),
    ('import { x } from "./app.js";', "imports itself"),
    ('import x from "./math.js";', "cannot be joined"),
    ("export default 1;", "cannot be joined"),
    ("export let x = 1;", "cannot be joined"),
    ('const x = await import("./math.js");', "cannot be joined"),
])  # fmt: skip
def test_what_cannot_be_joined_is_rejected_at_once(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bundle({"math.js": "", "app.js": text}, "app.js")
