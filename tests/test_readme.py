"""What the README shows is what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_what_is_shown_stands_in_an_example() -> None:
    shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    examples = [path.read_text() for path in (ROOT / "examples").glob("*.py")]
    assert shown
    assert [block for block in shown if not any(block in example for example in examples)] == []


def test_the_files_that_are_named_exist() -> None:
    named = re.findall(r"`((?:examples|docs|tf_rdmabatch)/[\w./]+)`", README)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_targets_of_links_exist() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert targets >= {"demo", "test"}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
