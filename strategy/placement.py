"""Which server a variable is placed on."""

from __future__ import annotations


class LeastLoaded:
    """Gives each variable to the server that has the fewest bytes yet, the first of equals.

    Parameters
    ----------
    servers
        How many there are.
    """

    def __init__(self, servers: int) -> None:
        self.loads = [0] * servers

    def next(self) -> int:
        """Return the server for the next variable."""
        return self.loads.index(min(self.loads))

    def add(self, server: int, nbytes: int) -> None:
        """Count a variable of `nbytes` that was placed on a server."""
        # Empty variables too go round.
        self.loads[server] += max(nbytes, 1)
