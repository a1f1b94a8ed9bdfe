"""Products with packed 0/1 columns: from the bytes, or unpacked for BLAS; with real vectors, binary ones, themselves.

What the library uses is marked. Where numba happens to be installed, compiled kernels show what we leave.
"""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from cvxsnn import SpikeDictionary, build_dictionary
from cvxsnn.core import bits
from cvxsnn.dictionary.products import TUNING, lookup_product

from .measure import console, make_table

SHAPES = ((13_824, 820), (2_000, 40_000), (60_000, 4_096))
N_ACTIVE = 300
_BLOCK = 2**18
_DIGITS = 8

Kernel = Callable[[], Tensor]


def unpacked(dictionary: SpikeDictionary, atoms: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Columns as rows of float64, in blocks that stay in cache."""
    packed = dictionary.patterns[atoms]
    step = max(1, _BLOCK // (8 * packed.shape[1]))
    buffer = torch.empty(step * 8 * packed.shape[1], dtype=torch.float64)
    for start in range(0, len(packed), step):
        chosen = slice(start, start + step)
        yield chosen, bits.unpack(packed[chosen], dictionary.n_rows, torch.float64, buffer)


def blas_rmatvec(dictionary: SpikeDictionary, rows: Tensor) -> Tensor:
    """Blocks times columns."""
    everything = torch.arange(dictionary.n_atoms)
    return torch.cat([block @ rows for _, block in unpacked(dictionary, everything)])


def across_rmatvec(dictionary: SpikeDictionary, rows: Tensor) -> Tensor:
    """Columns held as rows, times blocks."""
    across = rows.T.contiguous()
    everything = torch.arange(dictionary.n_atoms)
    return torch.cat([(across @ block.T).T for _, block in unpacked(dictionary, everything)])


def byte_rmatvec(dictionary: SpikeDictionary, rows: Tensor) -> Tensor:
    """Numbers as eight digits of seven bits, in exact products of bytes: no sum is rounded, whatever its order."""
    scale = torch.ldexp(torch.ones_like(rows[:1]), torch.frexp(rows.abs().amax(0, keepdim=True))[1])
    rest, digits = 64 * rows / scale, []
    for _ in range(_DIGITS):
        digits.append(rest.round())
        rest = 128 * (rest - digits[-1])
    packed = dictionary.patterns
    padded = torch.zeros(8 * packed.shape[1], _DIGITS * rows.shape[1], dtype=torch.int8)
    padded[: len(rows)] = torch.cat(digits, dim=1)
    step = max(32, 2**20 // len(padded))
    buffer = torch.empty(step * len(padded), dtype=torch.int8)
    sums = [
        torch._int_mm(bits.unpack(packed[start : start + step], len(padded), torch.int8, buffer), padded)
        for start in range(0, len(packed), step)
    ]
    weight = 2.0 ** (-7 * torch.arange(_DIGITS, dtype=torch.float64) - 6)
    return torch.einsum("adm,d->am", torch.cat(sums).view(len(packed), _DIGITS, -1).double(), weight) * scale


def blas_matvec(dictionary: SpikeDictionary, coef: Tensor) -> Tensor:
    """Blocks, transposed, times coefficients."""
    active = torch.nonzero(coef.any(1)).squeeze(1)
    scores, chosen = coef.new_zeros(dictionary.n_rows, coef.shape[1]), coef[active]
    for atoms, block in unpacked(dictionary, active):
        scores.addmm_(block.T, chosen[atoms])
    return scores


def lookup_matvec(dictionary: SpikeDictionary, coef: Tensor) -> Tensor:
    """Bits transposed, then looked up."""
    active = torch.nonzero(coef.any(1)).squeeze(1)
    return lookup_product(bits.transpose(dictionary.patterns[active], dictionary.n_rows), coef[active])


def popcount_gram(packed: Tensor) -> Tensor:
    """AND and population count of 64-bit words, one row of the triangle at a time."""
    gram = torch.zeros(len(packed), len(packed), dtype=torch.int64)
    for row in range(len(packed)):
        gram[row, row:] = bits.count(packed[row:] & packed[row])
    return gram + torch.triu(gram, 1).T


def float_gram(packed: Tensor, n_rows: int) -> Tensor:
    """Float32 products, the triangle in four blocks a side as the library does it."""
    columns = bits.unpack(packed, n_rows, torch.float32)
    gram = torch.empty(len(packed), len(packed))
    for top, bottom in pairwise(len(packed) * k // 4 for k in range(5)):
        gram[top:bottom, top:] = columns[top:bottom] @ columns[top:].T
        gram[bottom:, top:bottom] = gram[top:bottom, bottom:].T
    return gram


def compiled_kernels() -> tuple[Callable[..., None], Callable[..., None]] | None:
    """Look-ups and population counts compiled by numba, or None without it."""
    try:
        import numba
        from llvmlite import ir
    except ImportError:
        return None

    @numba.extending.intrinsic
    def popcount(_, word):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            kind = ir.IntType(64)
            function = builder.module.declare_intrinsic("llvm.ctpop", [kind])
            return builder.call(function, arguments)

        return numba.types.uint64(numba.types.uint64), generate

    @numba.njit(fastmath=True)
    def look_up(packed, tables, product):  # type: ignore[no-untyped-def]
        for left in range(0, packed.shape[1], 64):
            right = min(left + 64, packed.shape[1])
            for row in range(packed.shape[0]):
                total = 0.0
                for place in range(left, right):
                    total += tables[place, packed[row, place]]
                product[row] += total

    @numba.njit
    def count_common(words, gram):  # type: ignore[no-untyped-def]
        tile = 32
        for first in range(0, words.shape[0], tile):
            for second in range(first, words.shape[0], tile):
                for row in range(first, min(first + tile, words.shape[0])):
                    for column in range(max(row, second), min(second + tile, words.shape[0])):
                        total = np.uint64(0)
                        for word in range(words.shape[1]):
                            total += popcount(words[row, word] & words[column, word])
                        gram[row, column] = total
                        gram[column, row] = total

    return look_up, count_common


def compiled_rmatvec(look_up: Callable[..., None], dictionary: SpikeDictionary, rows: Tensor) -> Tensor:
    """The look-ups of one output after the other, compiled."""
    packed = dictionary.patterns.numpy()
    table = bits.unpack(torch.arange(256, dtype=torch.uint8)[:, None], 8, torch.float64).T
    padded = rows.new_zeros(rows.shape[1], 8 * packed.shape[1])
    padded[:, : len(rows)] = rows.T
    product = np.zeros((rows.shape[1], len(packed)))
    for output, values in enumerate(padded):
        look_up(packed, (values.view(-1, 8) @ table).numpy(), product[output])
    return torch.from_numpy(product).T


def compiled_gram(count_common: Callable[..., None], packed: Tensor) -> Tensor:
    """AND and population count, compiled."""
    words = packed.contiguous().view(torch.int64).numpy().view(np.uint64)
    gram = np.empty((len(words), len(words)), dtype=np.uint64)
    count_common(words, gram)
    return torch.from_numpy(gram.view(np.int64))


def best_of(kernel: Kernel, n_rounds: int) -> float:
    """The shortest time of a few calls: processor time with one thread, so that other jobs do not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    taken = []
    for _ in range(n_rounds):
        begin = clock()
        kernel()
        taken.append(clock() - begin)
    return min(taken)


def compare(title: str, kernels: dict[str, Kernel], n_entries: float, n_rounds: int) -> None:
    """Check that all give the same numbers, time them, print entries a second and the ratio to the first."""
    expected = next(iter(kernels.values()))().double()
    for name, kernel in kernels.items():
        torch.testing.assert_close(kernel().double(), expected, rtol=1e-9, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
    seconds = {name: best_of(kernel, n_rounds) for name, kernel in kernels.items()}
    table = make_table(title, "kernel", "ms", "entries/s", "against the first")
    first = next(iter(seconds.values()))
    for name, best in seconds.items():
        table.add_row(name, f"{1e3 * best:.2f}", f"{n_entries / best:.2e}", f"{first / best:.2f} ×")
    console.print(table)


def main() -> None:
    """Go through the shapes."""
    generator = torch.Generator().manual_seed(0)
    compiled = compiled_kernels()
    for n_rows, n_atoms in SHAPES:
        dictionary = build_dictionary(torch.rand(n_rows, n_atoms, generator=generator) < 0.3)
        packed = dictionary.patterns
        shape = f"{n_rows:,} × {n_atoms:,}"
        n_rounds = 3 if n_rows * n_atoms > 5e7 else 9
        for n_outputs in (1, 3, 10):
            rows = torch.randn(n_rows, n_outputs, generator=generator, dtype=torch.float64)
            few = n_outputs <= TUNING.max_lookup_outputs
            kernels: dict[str, Kernel] = {
                "unpacked @ R": lambda d=dictionary, r=rows: blas_rmatvec(d, r),
                f"Rᵀ @ unpackedᵀ{'' if few else ' (used)'}": lambda d=dictionary, r=rows: across_rmatvec(d, r),
                f"table look-ups{' (used)' if few else ''}": lambda p=packed, r=rows: lookup_product(p, r),
                "eight digits in bytes": lambda d=dictionary, r=rows: byte_rmatvec(d, r),
            }
            if compiled:
                kernels["table look-ups, numba"] = lambda d=dictionary, r=rows: compiled_rmatvec(compiled[0], d, r)
            compare(f"Dᵀ·R, {shape}, {n_outputs} outputs", kernels, n_rows * n_atoms, n_rounds)
            coef = torch.zeros(n_atoms, n_outputs, dtype=torch.float64)
            coef[:N_ACTIVE] = torch.randn(N_ACTIVE, n_outputs, generator=generator, dtype=torch.float64)
            products: dict[str, Kernel] = {
                "unpackedᵀ @ W": lambda d=dictionary, w=coef: blas_matvec(d, w),
                "Wᵀ @ unpacked (used)": lambda d=dictionary, w=coef: d.matvec(w),
                "transpose, then look-ups": lambda d=dictionary, w=coef: lookup_matvec(d, w),
            }
            compare(f"D·W, {shape}, {N_ACTIVE} active", products, n_rows * N_ACTIVE, n_rounds)
        binary = (torch.rand(n_rows, 1, generator=generator) < 0.5).double()
        mask = bits.pack(binary[:, 0].bool())
        counts: dict[str, Kernel] = {
            "table look-ups (used)": lambda d=dictionary, r=binary: d.rmatvec(r),
            "AND, population count": lambda p=packed, m=mask: bits.count(p & m)[:, None],
        }
        compare(f"Dᵀ·r for binary r, {shape}", counts, n_rows * n_atoms, n_rounds)
        if n_atoms > 5000:
            continue
        grams: dict[str, Kernel] = {
            "bytes, _int_mm (used)": dictionary.gram,
            "float32": lambda p=packed, n=n_rows: float_gram(p, n),
        }
        if n_atoms < 1000:
            grams["AND, population count"] = lambda p=packed: popcount_gram(p)
        if compiled:
            grams["AND, population count, numba"] = lambda p=packed: compiled_gram(compiled[1], p)
        compare(f"Gram matrix, {shape}", grams, n_rows * n_atoms * n_atoms, min(n_rounds, 5))
