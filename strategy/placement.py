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

    def place(self, nbytes: int) -> int:
        """Return the server for a variable of `nbytes`."""
        server = self.loads.index(min(self.loads))
        # Empty variables too go round.
        self.loads[server] += max(nbytes, 1)
        return server
