"""cvxsnn: spiking neural networks trained to a certified global optimum."""

from . import exchange as interop
from .app.planning import Cluster, Plan, plan
from .app.rates import Rates, measure_rates
from .convex import (
    Certificate,
    ConvergenceError,
    ConvergenceWarning,
    ConvexProblem,
    Path,
    Solution,
    SquaredStatistics,
    StatisticsSolution,
    Status,
    certify,
    certify_statistics,
    gather_statistics,
    solve,
    solve_path,
    solve_statistics,
    solve_statistics_path,
)
from .convex.objective import Objective
from .core.errors import BudgetError, CvxsnnError, DataFileError, InvalidInputError
from .data import tasks
from .data.audio import mel_spectrogram, speech_features
from .data.encoders import encode_delta, encode_latency, encode_rate
from .data.training_set import TrainingSet
from .dictionary import (
    DenseDictionary,
    DictionaryHealth,
    ShardedDictionary,
    SpikeDictionary,
    build_dictionary,
    open_dictionary,
    stack_health,
    stream_dictionary,
)
from .estimators import SpikingClassifier, SpikingRegressor
from .estimators.files import load, save
from .exchange.quantisation import compare_bits, quantise, quantise_and_solve, quantise_estimator, quantise_readout
from .exchange.readout import ReadoutResult, ReadoutScore, reconstruct_readout
from .network.energy import Joules, Operations, count_operations
from .network.proof import Proof
from .network.reconstruction import reconstruct, rescale_hidden, weight_decay_objective
from .network.spiking_network import SpikingNetwork
from .network.summary import summarise
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .training.growth import Ascent, grow_witnesses
from .training.methods import METHODS, Trained, train, train_task
from .training.pools import PoolSolution, solve_pool
from .training.search import Tuned, Tuning, tune_witnesses
from .training.settings import Settings, Split
from .training.surrogate.settings import SurrogateSettings
from .training.surrogate.trainer import train_surrogate
from .witnesses import (
    Constant,
    LogUniform,
    Normal,
    Uniform,
    WitnessSet,
    gaussian_witnesses,
    join_witnesses,
    single_out,
)
from .witnesses.pool import WitnessPool

__all__ = [
    "METHODS",
    "Ascent",
    "BudgetError",
    "Certificate",
    "Cluster",
    "Constant",
    "ConvergenceError",
    "ConvergenceWarning",
    "ConvexProblem",
    "CvxsnnError",
    "DataFileError",
    "DenseDictionary",
    "DictionaryHealth",
    "InvalidInputError",
    "Joules",
    "LIFLayer",
    "LogUniform",
    "Normal",
    "Objective",
    "Operations",
    "Path",
    "Plan",
    "PoolSolution",
    "Proof",
    "Rates",
    "ReadoutResult",
    "ReadoutScore",
    "Settings",
    "ShardedDictionary",
    "Solution",
    "SpikeDictionary",
    "SpikingClassifier",
    "SpikingNetwork",
    "SpikingRegressor",
    "Split",
    "SquaredStatistics",
    "StatisticsSolution",
    "Status",
    "SurrogateSettings",
    "ThresholdLayer",
    "Trained",
    "TrainingSet",
    "Tuned",
    "Tuning",
    "Uniform",
    "WitnessPool",
    "WitnessSet",
    "build_dictionary",
    "certify",
    "certify_statistics",
    "compare_bits",
    "count_operations",
    "encode_delta",
    "encode_latency",
    "encode_rate",
    "gather_statistics",
    "gaussian_witnesses",
    "grow_witnesses",
    "interop",
    "join_witnesses",
    "load",
    "measure_rates",
    "mel_spectrogram",
    "open_dictionary",
    "plan",
    "quantise",
    "quantise_and_solve",
    "quantise_estimator",
    "quantise_readout",
    "reconstruct",
    "reconstruct_readout",
    "rescale_hidden",
    "roll_out",
    "save",
    "single_out",
    "solve",
    "solve_path",
    "solve_pool",
    "solve_statistics",
    "solve_statistics_path",
    "speech_features",
    "stack_health",
    "stream_dictionary",
    "summarise",
    "tasks",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
    "weight_decay_objective",
]
