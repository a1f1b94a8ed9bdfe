"""The theory in exact arithmetic: complete dictionaries, weight decay, certificates over all witnesses."""

from .certificate_file import write_certificate
from .column_generation import CompleteSolution, solve_complete
from .complete_certificate import CompleteCertificate, certify_complete
from .enumeration import (
    Patterns,
    Trajectories,
    complete_dictionary,
    count_cells,
    enumerate_lif,
    enumerate_patterns,
)
from .family_union import FamilyUnion
from .lif_family import LIFFamily
from .pricing import Price, price
from .proving import prove_complete
from .weight_decay import rescale_hidden, weight_decay_objective

__all__ = [
    "CompleteCertificate",
    "CompleteSolution",
    "FamilyUnion",
    "LIFFamily",
    "Patterns",
    "Price",
    "Trajectories",
    "certify_complete",
    "complete_dictionary",
    "count_cells",
    "enumerate_lif",
    "enumerate_patterns",
    "price",
    "prove_complete",
    "rescale_hidden",
    "solve_complete",
    "weight_decay_objective",
    "write_certificate",
]
