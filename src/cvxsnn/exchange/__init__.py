"""Exchange with snnTorch, SpikingJelly, Norse and NIR. None of them is imported before it is asked for."""

from .neighbours import LossyExchangeWarning, MissingLibraryError
from .nir import from_nir, to_nir, write_nir
from .nir_modules import nirtorch_node_map
from .nir_network import NIRNetwork
from .norse import from_norse, to_norse
from .snntorch import from_snntorch, to_snntorch
from .spikingjelly import from_spikingjelly, to_spikingjelly

__all__ = [
    "LossyExchangeWarning",
    "MissingLibraryError",
    "NIRNetwork",
    "from_nir",
    "from_norse",
    "from_snntorch",
    "from_spikingjelly",
    "nirtorch_node_map",
    "to_nir",
    "to_norse",
    "to_snntorch",
    "to_spikingjelly",
    "write_nir",
]
