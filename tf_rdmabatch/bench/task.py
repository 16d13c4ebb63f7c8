"""One process of a benchmark: ``python -m tf_rdmabatch.bench.task``.

Reads a call a line from its input, as JSON: ``{"call": name, "arguments": {...}}``; ``create``
makes a task, ``close`` ends it, and every other name is a method of `_core.BenchTask`. Answers
each with a line, ``{"result": ...}`` or ``{"error": ...}``. Ends when its input ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tf_rdmabatch import _core


def main() -> None:
    """Answer calls until the input ends."""
    task: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        name, arguments = request["call"], request["arguments"]
        answer: dict[str, Any]
        try:
            if name == "create":
                task = _core.BenchTask(**arguments)
                answer = {"result": None}
            elif name == "close":
                task = None
                answer = {"result": None}
            else:
                answer = {"result": getattr(task, name)(**arguments)}
        except Exception as error:
            answer = {"error": str(error) or repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
