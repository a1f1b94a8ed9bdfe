"""Exchange with other libraries and with chips. Other libraries are imported on demand."""

from .bit_comparison import BitsComparison, BitsRow, compare_bits
from .nir import from_nir, to_nir, write_nir
from .nir_modules import nirtorch_node_map
from .nir_network import NIRNetwork
from .norse import from_norse, to_norse
from .quantisation import Quantised, quantise_and_solve, quantise_estimator
from .readout import ReadoutResult, ReadoutScore, reconstruct_readout
from .rounding import quantise, quantise_readout
from .snntorch import from_snntorch, to_snntorch
from .spikingjelly import from_spikingjelly, to_spikingjelly

__all__ = [
    "BitsComparison",
    "BitsRow",
    "NIRNetwork",
    "Quantised",
    "ReadoutResult",
    "ReadoutScore",
    "compare_bits",
    "from_nir",
    "from_norse",
    "from_snntorch",
    "from_spikingjelly",
    "nirtorch_node_map",
    "quantise",
    "quantise_and_solve",
    "quantise_estimator",
    "quantise_readout",
    "reconstruct_readout",
    "to_nir",
    "to_norse",
    "to_snntorch",
    "to_spikingjelly",
    "write_nir",
]
