"""What an exchange has lost, as a warning."""

import warnings

from ..core.errors import LossyExchangeWarning


def warn_lossy(what: str) -> None:
    """Warn of what an exchange has lost."""
    warnings.warn(f"lossy: {what}", LossyExchangeWarning, stacklevel=3)
