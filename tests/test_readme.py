"""What the README shows is what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_is_the_one_that_is_run() -> None:
    shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    example = (ROOT / "examples" / "push_pull.py").read_text()
    assert len(shown) == 1
    assert example.endswith(shown[0])


def test_the_targets_of_links_exist() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert targets >= {"demo", "test"}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
