"""A worker or ps task of the tests. Arguments: job, index."""

from __future__ import annotations

import sys

from tf_rdmabatch.strategy.serve import serve

if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
