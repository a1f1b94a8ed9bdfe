"""Exchange with other libraries and with chips. No library is imported before it is needed."""

from .nir import from_nir, to_nir, write_nir
from .nir_modules import nirtorch_node_map
from .nir_network import NIRNetwork
from .norse import from_norse, to_norse
from .quantisation import compare_bits, quantise, quantise_and_solve, quantise_estimator, quantise_readout
from .readout import ReadoutResult, ReadoutScore, reconstruct_readout
from .snntorch import from_snntorch, to_snntorch
from .spikingjelly import from_spikingjelly, to_spikingjelly

__all__ = [
    "NIRNetwork",
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
