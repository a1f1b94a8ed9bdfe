"""The theory in exact arithmetic: complete dictionaries, strong duality, certificates over all witnesses."""

from .caratheodory import reduce_support, support_bound
from .certificate_file import write_certificate
from .column_generation import CompleteSolution, solve_complete
from .complete_certificate import CompleteCertificate, certify_complete
from .duality import StrongDuality, verify_strong_duality
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

__all__ = [
    "CompleteCertificate",
    "CompleteSolution",
    "FamilyUnion",
    "LIFFamily",
    "Patterns",
    "Price",
    "StrongDuality",
    "Trajectories",
    "certify_complete",
    "complete_dictionary",
    "count_cells",
    "enumerate_lif",
    "enumerate_patterns",
    "price",
    "prove_complete",
    "reduce_support",
    "solve_complete",
    "support_bound",
    "verify_strong_duality",
    "write_certificate",
]
