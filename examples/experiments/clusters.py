"""Clusters to simulate: how fast their workers are, from what others have measured.

Sources, and what is taken from them:

- *types*: CPU capacities of the 12,583 machines of a Google cluster and how many have which,
  relative to the largest: C. Reiss, A. Tumanov, G. R. Ganger, R. H. Katz, M. A. Kozuch,
  Heterogeneity and Dynamicity of Clouds at Scale: Google Trace Analysis, SoCC 2012, table 1.
  That a micro-step's speed is proportional to capacity is an assumption.
- *models*: the fastest of virtual machines of one type, on various CPU models, compresses 77 %
  faster than the slowest (bzip2): J. O'Loughlin, L. Gillam, Good Performance Metrics for Cloud
  Service Brokers, 2014. That speeds are uniform in between is an assumption.
- *periods*: how much longer outliers take than the median: 80 % of them uniformly from 1.5 to 2.5
  times as long, 10 % more than 10 times: G. Ananthanarayanan et al., Reining in the Outliers in
  Map-Reduce Clusters using Mantri, OSDI 2010, section 4.1. Log-uniform from 2.5 times on is an
  assumption; that 10 % are above 10 makes its end 40. That slow computation is met in less than 2 %
  of the cases and lasts for 10 minutes on average: T. Wu et al., Greyhound: Hunting Fail-Slows in
  Hybrid-Parallel Training at Scale, ATC 2025. That 2 % of the workers are slow at a time, lengths
  are geometric, and a round takes 10 s, so that a period has 60 rounds, are assumptions.
- The shares of the machine types were checked against another count of the same trace; the figures
  of *periods* are quoted from what is said of these papers, and were not read again in them.
- Jitter of 5 % from round to round (log-normal) is an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# CPU capacity: machines.
GOOGLE_2011 = {0.25: 126, 0.5: 11659, 1.0: 798}
EC2_FASTEST = 1.77
# Of outliers' slowdowns: the probability of the first range, and the ranges' ends.
MANTRI_FIRST = 0.8
MANTRI_ENDS = (1.5, 2.5, 40.0)
GREYHOUND_SHARE = 0.02
JITTER = 0.05


@dataclass(frozen=True)
class Cluster:
    """Distributions that workers are drawn from.

    Parameters
    ----------
    speeds
        Of a worker for good: `same`, `types` or `models`.
    slow_share
        The part of the time that a worker is slow.
    period
        Mean rounds of a slow period.
    jitter
        Standard deviation of a round's factor, in logarithms.
    """

    speeds: str = "same"
    slow_share: float = 0.0
    period: float = 60.0
    jitter: float = JITTER

    def factors(self, rounds: int, workers: int, random: np.random.Generator) -> Floats:
        """Return how much longer than on the fastest worker type a micro-step takes.

        Returns
        -------
        array of shape (rounds, workers)
            Lasting factor times that of a slow period times jitter.
        """
        lasting = 1 / lasting_speeds(self.speeds, workers, random)
        slow = slow_periods(rounds, workers, self.slow_share, self.period, random)
        return lasting * slow * np.exp(random.normal(0, self.jitter, (rounds, workers)))


CLUSTERS = {
    "same": Cluster(),
    "types": Cluster("types"),
    "models": Cluster("models"),
    "periods": Cluster(slow_share=GREYHOUND_SHARE),
    "types+periods": Cluster("types", GREYHOUND_SHARE),
}


def lasting_speeds(kind: str, workers: int, random: np.random.Generator) -> Floats:
    """Return each worker's speed.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    if kind == "same":
        return np.ones(workers)
    if kind == "models":
        return random.uniform(1, EC2_FASTEST, workers) / EC2_FASTEST
    if kind == "types":
        machines = np.array(list(GOOGLE_2011.values()), np.float64)
        return random.choice(list(GOOGLE_2011), workers, p=machines / machines.sum())
    raise ValueError(f"there are no workers of kind {kind!r}")


def slowdowns(count: int, random: np.random.Generator) -> Floats:
    """Return what slow periods multiply times by."""
    start, middle, end = MANTRI_ENDS
    short = random.uniform(start, middle, count)
    long = np.exp(random.uniform(np.log(middle), np.log(end), count))
    return np.where(random.random(count) < MANTRI_FIRST, short, long)


def slow_periods(
    rounds: int, workers: int, share: float, period: float, random: np.random.Generator
) -> Floats:
    """Return factors of periods that begin and end at random, shape (rounds, workers).

    Each worker is slow for a `share` of the rounds, in periods of a geometric length of mean
    `period`, at first too, each with a slowdown of its own.
    """
    factors = np.ones((rounds, workers))
    if share == 0:
        return factors
    begins = share / (1 - share) / period
    slow = random.random(workers) < share
    current = np.where(slow, slowdowns(workers, random), 1.0)
    for row in factors:
        row[:] = current
        change = random.random(workers) < np.where(current > 1, 1 / period, begins)
        current = np.where(change, np.where(current > 1, 1.0, slowdowns(workers, random)), current)
    return factors
