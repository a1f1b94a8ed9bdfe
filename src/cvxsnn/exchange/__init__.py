"""Exchange with other libraries and with chips. Other libraries are imported on demand."""

from .c import export_c
from .nir import from_nir, to_nir, write_nir
from .nir_network import NIRNetwork, nirtorch_node_map
from .peers import from_norse, from_snntorch, from_spikingjelly, to_norse, to_snntorch, to_spikingjelly
from .quantisation import BitsComparison, BitsRow, Quantised, compare_bits, quantise_and_solve, quantise_estimator
from .readout import ReadoutResult, ReadoutScore, reconstruct_readout
from .rounding import quantise, quantise_readout

__all__ = [
    "BitsComparison",
    "BitsRow",
    "NIRNetwork",
    "Quantised",
    "ReadoutResult",
    "ReadoutScore",
    "compare_bits",
    "export_c",
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
