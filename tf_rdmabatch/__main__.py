"""``python -m tf_rdmabatch`` is the command ``tf-rdmabatch``."""

from __future__ import annotations

import sys

from tf_rdmabatch.cli import main

sys.exit(main())
