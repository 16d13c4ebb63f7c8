"""The parameter-server strategy over the engine."""

from tf_rdmabatch.strategy.serve import serve
from tf_rdmabatch.strategy.step_reallocation import StepReallocation
from tf_rdmabatch.strategy.strategy import ParameterServerStrategy

__all__ = ["ParameterServerStrategy", "StepReallocation", "serve"]
