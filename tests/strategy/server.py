"""A worker or ps task of the tests; TF_CONFIG says which."""

from __future__ import annotations

import tf_rdmabatch

if __name__ == "__main__":
    tf_rdmabatch.serve()
