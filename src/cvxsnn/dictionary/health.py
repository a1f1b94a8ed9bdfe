"""How much of a dictionary is useful."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DictionaryHealth:
    """How much of what the witnesses produced is useful. A column is what is read of a witness, or of one window of it.

    Parameters
    ----------
    n_columns : int
        Columns before duplicates were removed.
    n_atoms : int
        Columns after duplicates were removed.
    n_dead : int
        Columns that are always 0.
    n_saturated : int
        Columns of neurons that fire at every step that is read.
    n_duplicate : int
        Columns equal to an earlier one.
    n_complementary : int
        Pairs of atoms that are each other's negation.
    density : float
        Mean of all columns.
    n_rows : int
        Number of rows.
    n_distinct_rows : int
        Rows that differ in their spikes: those that do not, no read-out can tell apart.
    """

    n_columns: int
    n_atoms: int
    n_dead: int
    n_saturated: int
    n_duplicate: int
    n_complementary: int
    density: float
    n_rows: int
    n_distinct_rows: int

    @property
    def shares(self) -> dict[str, float]:
        """Shares of distinct, otherwise duplicate, saturated and dead columns, which add up to one."""
        # A dead or saturated column is a duplicate of the first of its kind: count it under one name only.
        constant = self.n_dead + self.n_saturated
        distinct = self.n_atoms - (self.n_dead > 0) - (self.n_saturated > 0)
        counts = {
            "distinct": distinct,
            "other duplicates": self.n_columns - constant - distinct,
            "saturated": self.n_saturated,
            "dead": self.n_dead,
        }
        return {label: count / self.n_columns for label, count in counts.items()}

    def __str__(self) -> str:
        """Return one line for a person."""
        return (
            f"{self.n_columns} columns gave {self.n_atoms} atoms (density {self.density:.3f}): {self.n_dead} dead, "
            f"{self.n_saturated} saturated, {self.n_duplicate} duplicate, {self.n_complementary} complementary pairs; "
            f"{self.n_distinct_rows} of {self.n_rows} rows distinct"
        )
