"""A worker or ps task of the tests; TF_CONFIG says which."""

from __future__ import annotations

import tf_rdmabatch

if __name__ == "__main__":
    # Between two chiefs there is the start of a Python on a busy machine.
    tf_rdmabatch.serve(linger=120)
