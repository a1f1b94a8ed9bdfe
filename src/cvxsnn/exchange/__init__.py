"""Exchange with other libraries and with chips. Other libraries, and their bridges, are imported on demand."""

from typing import TYPE_CHECKING

from ..core.libraries import names_on_demand
from .readout import ReadoutResult, ReadoutScore, reconstruct_readout

if TYPE_CHECKING:
    from .c import export_c
    from .chips import export_loihi, export_xylo, run_nengo_loihi, run_xylosim
    from .nir import from_nir, to_nir, write_nir
    from .nir_network import NIRNetwork, nirtorch_node_map
    from .onnx import export_onnx
    from .peers import from_norse, from_snntorch, from_spikingjelly, to_norse, to_snntorch, to_spikingjelly
    from .quantisation import Quantised, quantise_and_solve, quantise_estimator
    from .rounding import quantise, quantise_readout

__all__ = [
    "NIRNetwork",
    "Quantised",
    "ReadoutResult",
    "ReadoutScore",
    "export_c",
    "export_loihi",
    "export_onnx",
    "export_xylo",
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
    "run_nengo_loihi",
    "run_xylosim",
    "to_nir",
    "to_norse",
    "to_snntorch",
    "to_spikingjelly",
    "write_nir",
]

__getattr__ = names_on_demand(
    __name__,
    globals(),
    {
        "c": "export_c",
        "chips": "export_loihi export_xylo run_nengo_loihi run_xylosim",
        "nir": "from_nir to_nir write_nir",
        "nir_network": "NIRNetwork nirtorch_node_map",
        "onnx": "export_onnx",
        "peers": "from_norse from_snntorch from_spikingjelly to_norse to_snntorch to_spikingjelly",
        "quantisation": "Quantised quantise_and_solve quantise_estimator",
        "rounding": "quantise quantise_readout",
    },
)
