"""Who may know whom: CONTRIBUTING.md states the layers, this test holds the sources to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("tf_rdmabatch", "ops", "strategy", "tests", "examples", "tools", ".ci")
SUFFIXES = {".cc", ".h", ".py", ".pyi", ".txt", ".sh", ".pml", ""}
MAX_LINES = 400
# Spelled so that this file does not hold it.
UNFINISHED = "TO" + "DO"

# layer: the layers whose headers it may include.
CC_LAYERS = {
    "base": {"base"},
    "memory": {"base", "memory"},
    "transport": {"base", "memory", "transport"},
    "engine": {"base", "memory", "transport", "engine"},
    "bench": {"base", "memory", "transport", "engine", "bench"},
    "python": {"base", "memory", "transport", "engine", "bench", "python"},
    "kernels": {"base", "memory", "transport", "engine", "kernels"},
}
# library: the only folder that may include its headers.
LIBRARIES = {
    "infiniband/": "tf_rdmabatch/cc/transport/verbs/",
    "rdma/": "tf_rdmabatch/cc/transport/verbs/",
    "pybind11/": "tf_rdmabatch/cc/python/",
    "tensorflow/": "ops/kernels/",
    "absl/": "ops/kernels/",
}
# Of the strategy: plain numbers in, plain numbers out.
NO_TENSORFLOW = {
    "strategy/allotments.py",
    "strategy/step_allocator.py",
    "strategy/time_estimate.py",
}
BELOW_ENGINE = {"base", "memory", "transport"}
ENGINE_WORDS = re.compile(
    r"\b(push|pull|variable|parameter)s?\b|(Push|Pull|Variable|Parameter)s?(?![a-z])"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)
CONCRETE = re.compile(r"^tf_rdmabatch/cc/transport/(\w+)/")
COMMENT = re.compile(r"//.*")
CONCRETE_NAME = re.compile(r'"(shm|verbs|tcp)"')


def source_files(root: Path) -> Iterator[tuple[str, str]]:
    """Yield path (relative to `root`) and text of each file that people write."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            hidden = any(
                part in {"__pycache__", "seeds"} or part.startswith(".")
                for part in path.relative_to(root / folder).parts
            )
            if path.is_file() and path.suffix in SUFFIXES and not hidden:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def find_violations(root: Path) -> list[str]:
    found = []
    for path, text in source_files(root):
        lines = text.count("\n")
        if lines >= MAX_LINES:
            found.append(f"{path}: {lines} lines, {MAX_LINES} are too many")
        if UNFINISHED in text:
            found.append(f"{path}: holds {UNFINISHED}")
        if path.endswith((".cc", ".h")):
            found += cc_violations(path, text)
        elif path.endswith((".py", ".pyi")):
            found += python_violations(path, text)
    return found


def cc_layer(path: str) -> str | None:
    parts = path.split("/")
    if parts[:2] == ["tf_rdmabatch", "cc"]:
        return parts[2]
    return "kernels" if parts[:2] == ["ops", "kernels"] else None


def cc_violations(path: str, text: str) -> Iterator[str]:
    layer = cc_layer(path)
    if layer is None:
        return
    if layer not in CC_LAYERS:
        yield f"{path}: {layer} is no known layer"
        return
    own = CONCRETE.match(path)
    may_name_transports = path == "tf_rdmabatch/cc/transport/registry.cc"
    for header in INCLUDE.findall(text):
        included = cc_layer(header)
        if included is not None and included not in CC_LAYERS[layer]:
            yield f"{path}: {layer} may not include {header}"
        for library, home in LIBRARIES.items():
            if header.startswith(library) and not path.startswith(home):
                yield f"{path}: only {home} may include <{header}>"
        concrete = CONCRETE.match(header)
        is_own = own is not None and concrete is not None and own[1] == concrete[1]
        if concrete and not is_own and not may_name_transports:
            yield f"{path}: only the registry may include {header}"
    if layer in BELOW_ENGINE | {"engine"} and own is None and not may_name_transports:
        for name in CONCRETE_NAME.findall(COMMENT.sub("", text)):
            yield f'{path}: only the registry may name the transport "{name}"'
    if layer in BELOW_ENGINE:
        for word in ENGINE_WORDS.finditer(text):
            line = text.count("\n", 0, word.start()) + 1
            yield f"{path}:{line}: '{word[0]}' is a word of the engine, not of {layer}"


def python_violations(path: str, text: str) -> Iterator[str]:
    forbidden = set()
    if path.startswith("tf_rdmabatch/") or path in NO_TENSORFLOW:
        forbidden.add("tensorflow")
    if path.startswith("tf_rdmabatch/") and path != "tf_rdmabatch/__init__.py":
        forbidden |= {"tf_rdmabatch.ops", "tf_rdmabatch.strategy"}
    if path.startswith("ops/"):
        forbidden.add("tf_rdmabatch.strategy")
    for module in imported_modules(ast.parse(text)):
        for name in forbidden:
            if module == name:
                yield f"{path}: may not import {module}"


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        # a.b.c imports a, a.b and a.b.c.
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def test_sources_keep_to_the_layers() -> None:
    assert list(source_files(ROOT)), "no source was found"
    assert find_violations(ROOT) == []


CC = "tf_rdmabatch/cc"


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (f"{CC}/base/x.h", f'#include "{CC}/memory/segment.h"', "base may not include"),
        (f"{CC}/memory/x.h", f'#include "{CC}/transport/transport.h"', "memory may not include"),
        (f"{CC}/transport/x.cc", f'#include "{CC}/engine/lane.h"', "transport may not include"),
        (f"{CC}/engine/x.cc", f'#include "{CC}/python/x.h"', "engine may not include"),
        (f"{CC}/engine/x.cc", f'#include "{CC}/bench/x.h"', "engine may not include"),
        (f"{CC}/engine/x.cc", f'#include "{CC}/transport/shm/shm.h"', "only the registry may incl"),
        (f"{CC}/transport/verbs/x.cc", f'#include "{CC}/transport/shm/shm.h"', "only the registry"),
        (f"{CC}/engine/x.cc", 'auto* t = FindTransport("verbs");', "may name the transport"),
        (f"{CC}/engine/x.cc", "#include <infiniband/verbs.h>", "only tf_rdmabatch/cc/transport/ve"),
        (f"{CC}/transport/shm/x.cc", "#include <rdma/rdma_cma.h>", "only tf_rdmabatch/cc/transpo"),
        (f"{CC}/engine/x.cc", "#  include <pybind11/pybind11.h>", "only tf_rdmabatch/cc/python/"),
        (f"{CC}/engine/x.cc", '#include "tensorflow/core/x.h"', "only ops/kernels/ may include"),
        (f"{CC}/engine/task.cc", '#include "absl/status/status.h"', "only ops/kernels/ may incl"),
        (f"{CC}/engine/x.cc", '#include "ops/kernels/x.h"', "engine may not include ops/kernels"),
        (f"{CC}/transport/x.cc", "\n\n// one push at a time", ":3: 'push' is a word of the engine"),
        (f"{CC}/memory/x.h", "class ParameterStore;", "'Parameter' is a word of the engine"),
        (f"{CC}/other/x.cc", "", "other is no known layer"),
        ("ops/kernels/x.cc", f'#include "{CC}/python/x.h"', "kernels may not include"),
        ("tf_rdmabatch/engine.py", "import tensorflow as tf", "may not import tensorflow"),
        (
            "tf_rdmabatch/bench/x.py",
            "from tf_rdmabatch import ops",
            "may not import tf_rd",
        ),
        ("ops/x.py", "from tf_rdmabatch.strategy import x", "may not import tf_rdmabatch.strategy"),
        ("strategy/step_allocator.py", "import tensorflow", "may not import tensorflow"),
        ("examples/x.py", f"# {UNFINISHED}: finish", f"holds {UNFINISHED}"),
        ("tests/x.py", "x = 1\n" * MAX_LINES, "400 are too many"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, message: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    violations = find_violations(tmp_path)
    assert len(violations) == 1
    assert message in violations[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{CC}/transport/registry.cc", f'#include "{CC}/transport/shm/shm.h"\nauto n = "shm";'),
        (f"{CC}/transport/shm/shm.cc", f'#include "{CC}/transport/shm/layout.h"\nauto n = "shm";'),
        (f"{CC}/transport/verbs/x.cc", "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>"),
        (f"{CC}/base/x.h", "v.push_back(1); std::condition_variable c;"),
        (f"{CC}/engine/x.cc", f'#include "{CC}/base/status.h"\n// push and pull'),
        (f"{CC}/engine/x.h", 'std::string transport = "auto";  // or "shm", "verbs"'),
        (f"{CC}/python/x.cc", f'#include <pybind11/pybind11.h>\n#include "{CC}/engine/lane.h"'),
        ("ops/kernels/x.cc", f'#include "tensorflow/core/x.h"\n#include "{CC}/engine/lane.h"'),
        ("strategy/x.py", "import tensorflow\nfrom tf_rdmabatch import ops"),
        ("tests/x.py", "x = 1\n" * (MAX_LINES - 1)),
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, path: str, text: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert find_violations(tmp_path) == []
