"""How long something takes on each worker, from measurements with noise, hiccups and changes.

Sources: a change of a worker's speed is detected with two-sided cumulative sums of standardised
deviations (E. S. Page, Continuous Inspection Schemes, Biometrika 41, 1954), each deviation limited
(P. J. Huber, Robust Estimation of a Location Parameter, 1964), so that one bad round is none. A
jump that no noise explains is followed at once while most jumps so far have turned out to last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# What a clock that jumped says is no time: seconds, of a micro-step or its communication.
_PLAUSIBLE = (1e-9, 1e6)
# Rounds that an estimate is the mean of: more make it calmer, fewer follow a drift sooner.
_MEMORY = 64
# Relative noise of a time: assumed before there is any, and the least that is believed.
_FIRST_NOISE = 0.1
_LEAST_NOISE = 0.02
# In units of the noise. Two rounds in a row at the limit are a change, and one is none.
_LIMIT = 3.5
_DRIFT = 1.0
_ALARM = 4.0
# A deviation, in the same units, that no noise makes: a change or a hiccup, the next round tells.
_JUMP = 5.0
# What the last jump weighs in the share of those that lasted: three in a row are most of them.
_JUMP_WEIGHT = 0.25
# A worker's rounds before its jumps count: the first rounds trace and connect.
_SETTLED = 4


def reported(seconds: Floats) -> Floats:
    """Return the times with NaN for those that cannot be any."""
    least, most = _PLAUSIBLE
    return np.where((seconds >= least) & (seconds <= most), seconds, np.nan)


class TimeEstimate:
    """A positive quantity of each worker, in logarithms; vectors of shape (workers,)."""

    def __init__(self, workers: int) -> None:
        self.level = np.zeros(workers)
        self.noise = np.full(workers, _FIRST_NOISE)
        self.count = np.zeros(workers)  # rounds in the mean, at most _MEMORY
        self.rounds = np.zeros(workers, np.int64)  # seen at all
        self._sums = np.zeros((2, workers))  # cumulative, upwards and downwards
        self._last = np.zeros(workers)  # value of the round before
        self._jumped = np.zeros(workers, np.bool_)  # in that round
        self._before = np.zeros(workers)  # level before the jump
        self._jumps_last = 0.0  # share of all workers' jumps that lasted

    def observe(self, seconds: Floats) -> None:
        """Take a round's times as `reported` returns them; NaN is no observation."""
        seen = np.isfinite(seconds)
        value = np.log(np.where(seen, seconds, 1.0))
        first = seen & (self.count == 0)
        self.level[first] = value[first]
        deviation = np.where(seen, value - self.level, 0.0)
        limit = _LIMIT * self.noise
        limited = np.clip(deviation, -limit, limit)
        back = self._judge_jumps(seen, value)
        changed = self._detect(seen, limited / self.noise)
        # An alarm takes two rounds: earlier ones may be from before the change.
        self.level[changed] = (value[changed] + self._last[changed]) / 2
        self.count[changed] = 2
        changed |= self._jump(seen & ~changed, value, back)
        self._last[seen] = value[seen]
        steady = seen & ~changed
        self.count[steady] = np.minimum(self.count[steady] + 1, _MEMORY)
        self.level[steady] += limited[steady] / self.count[steady]
        self._follow_noise(steady & ~first, limited)
        self.rounds[seen] += 1

    def _judge_jumps(self, seen: Mask, value: Floats) -> Mask:
        """Learn whether jumps last; return whose did not."""
        judged = seen & self._jumped
        lasted = judged & (np.abs(value - self._last) < np.abs(value - self._before))
        if judged.any():
            weight = 1 - (1 - _JUMP_WEIGHT) ** int(judged.sum())
            share = float(lasted.sum() / judged.sum())
            self._jumps_last += weight * (share - self._jumps_last)
        self._jumped &= ~seen
        return judged & ~lasted

    def _jump(self, seen: Mask, value: Floats, back: Mask) -> Mask:
        """Follow jumps at once where jumps mostly last, and the end of those that did not."""
        seen = seen & (self.rounds >= _SETTLED)
        jumped = seen & (np.abs(value - self.level) > _JUMP * self.noise)
        self._jumped |= jumped & ~back
        self._before[jumped] = self.level[jumped]
        followed = jumped & (back | (self._jumps_last > 0.5))
        self.level[followed] = value[followed]
        self.count[followed] = 1
        self._sums[:, followed] = 0
        return followed

    def _follow_noise(self, steady: Mask, limited: Floats) -> None:
        # 1.2533: standard deviation over mean absolute deviation, of a normal distribution.
        weight = 1 / np.minimum(np.maximum(self.rounds, 4), _MEMORY)
        target = 1.2533 * np.abs(limited)
        noise = self.noise + weight * (target - self.noise)
        self.noise = np.where(steady, np.maximum(noise, _LEAST_NOISE), self.noise)

    def _detect(self, seen: Mask, standardised: Floats) -> Mask:
        """Add to the sums; return where the level has changed."""
        changed = np.zeros(len(seen), np.bool_)
        for side, sign in enumerate((1.0, -1.0)):
            sums = np.maximum(0.0, self._sums[side] + sign * standardised - _DRIFT)
            self._sums[side] = np.where(seen, sums, self._sums[side])
            changed |= seen & (sums > _ALARM)
        self._sums[:, changed] = 0
        return changed

    @property
    def seconds(self) -> Floats:
        """The level, in seconds; NaN for a worker that was never seen."""
        return np.where(self.rounds > 0, np.exp(self.level), np.nan)

    @property
    def relative_error(self) -> Floats:
        """The standard error of the level."""
        return self.noise / np.sqrt(np.maximum(self.count, 1))

    def renew(self, worker: int) -> None:
        """Have the next time of a worker replace what is known of it."""
        self.count[worker] = 0
        self.noise[worker] = _FIRST_NOISE
        self._sums[:, worker] = 0
        self._jumped[worker] = False

    def forget(self, worker: int) -> None:
        """Begin anew with a worker."""
        self.renew(worker)
        self.rounds[worker] = 0
