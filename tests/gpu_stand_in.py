"""A stand-in for a GPU on a machine without one: it computes on the CPU, and refuses the calls that a GPU refuses."""

import importlib
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import Tensor

from cvxsnn.core import gpu
from cvxsnn.neurons import gpu_kernels

_int_mm = torch._int_mm


def refuse_int_mm(left, right):
    """The product of bytes, with the checks of torch 2.13 on CUDA, and the one layout that every cuBLAS multiplies."""
    for name, size in (("self.size(1)", left.shape[1]), ("mat2.size(1)", right.shape[1])):
        if size == 0 or size % 8:
            raise RuntimeError(f"{name} needs to be greater than 0 and a multiple of 8, but got {size}")
    if left.shape[0] <= 16:
        raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {left.shape[0]}")
    if (left.dtype, right.dtype) != (torch.int8, torch.int8):
        raise RuntimeError(f"expected scalar type Char but found {left.dtype} and {right.dtype}")
    if not (left.is_contiguous() and right.T.is_contiguous()):
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul")
    return _int_mm(left, right)


@dataclass(frozen=True)
class Pointer:
    """Entries of an array at some offsets, as Triton has them: nothing but a mask keeps an offset inside the array."""

    array: Tensor
    offset: Tensor | int = 0

    @property
    def dtype(self):
        return SimpleNamespace(element_ty=self.array.dtype)

    def __add__(self, offset):
        return Pointer(self.array, self.offset + offset)

    def places(self, mask):
        offset = torch.as_tensor(self.offset)
        inside = torch.ones_like(offset, dtype=torch.bool) if mask is None else torch.as_tensor(mask).expand_as(offset)
        reached = offset[inside]
        if reached.numel() and not 0 <= int(reached.min()) <= int(reached.max()) < self.array.numel():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return reached.long(), inside


def load(pointer, mask=None, other=0):
    reached, inside = pointer.places(mask)
    values = torch.full(inside.shape, other, dtype=pointer.array.dtype)
    values[inside] = pointer.array.flatten()[reached]
    return values


def store(pointer, values, mask=None):
    reached, inside = pointer.places(mask)
    pointer.array.view(-1)[reached] = values.expand(inside.shape)[inside].to(pointer.array.dtype)


def arange(start, stop):
    if stop & (stop - 1):
        raise ValueError("arange's range must be a power of 2")
    return torch.arange(start, stop, dtype=torch.int32)


class Kernel:
    """A function of Triton, which runs program by program."""

    program = 0

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        def run(*arguments, block, enable_fp_fusion, **constants):
            if not all(0 < size <= most for size, most in zip(grid, (2**31 - 1, 65_535, 65_535), strict=False)):
                raise RuntimeError(f"Triton Error [CUDA]: invalid argument: a grid of {grid}")
            if enable_fp_fusion:
                raise RuntimeError("a fused product would be rounded once")
            # A size that fits is a 32-bit integer, whose products wrap around.
            values = [
                Pointer(value) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.int32)
                for value in arguments
            ]
            for Kernel.program in range(grid[0]):
                self.function(*values, block=block, **constants)

        return run


def make_triton():
    """Return the parts of Triton that the kernels use, over tensors of torch."""
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    vars(language).update(
        constexpr=object,
        int8=torch.int8,
        int32=torch.int32,
        int64=torch.int64,
        program_id=lambda axis: torch.tensor(Kernel.program, dtype=torch.int32),
        arange=arange,
        zeros=torch.zeros,
        full=lambda shape, value, dtype: torch.full(shape, value, dtype=dtype),
        load=load,
        store=store,
    )
    vars(triton).update(
        jit=Kernel,
        language=language,
        cdiv=lambda size, step: -(-size // step),
        next_power_of_2=lambda size: 1 << (size - 1).bit_length(),
    )
    return {"triton": triton, "triton.language": language}


class Stream:
    def __init__(self, device):
        pass

    def wait_stream(self, other):
        pass


@pytest.fixture
def gpu_stand_in(monkeypatch):
    """Have the CPU take the paths of a GPU on which Triton is not installed, unless there is a GPU."""
    if torch.cuda.is_available():
        return
    if gpu_kernels.triton is not None and gpu_kernels.triton is sys.modules.get("triton"):
        monkeypatch.setattr(gpu_kernels, "triton", None)  # the real one, which finds no GPU
    monkeypatch.setattr(gpu, "is_gpu", lambda device: True)
    monkeypatch.setattr(torch, "_int_mm", refuse_int_mm)
    for name, value in {
        "get_device_capability": lambda device: (9, 0),
        "device": nullcontext,
        "stream": nullcontext,
        "current_stream": Stream,
        "Stream": Stream,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.fixture
def triton_stand_in():
    """Have a CPU that takes the paths of a GPU run the kernels, too."""
    if torch.cuda.is_available():
        yield
        return
    with mock.patch.dict(sys.modules, make_triton()):  # torch would look for a compiler in it
        importlib.reload(gpu_kernels)
    yield
    importlib.reload(gpu_kernels)


@contextmanager
def paths_of_the_cpu():
    """Have the CPU take its own paths for a while, where the stand-in is at work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "is_gpu", lambda device: device.type == "cuda")
        patch.setattr(torch, "_int_mm", _int_mm)
        yield
