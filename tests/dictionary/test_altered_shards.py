import pytest
import torch
from dictionary.streams import batches
from small_models import assert_one_sentence

from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError
from cvxsnn.dictionary import open_dictionary, stream_dictionary


def put(name, value):
    return lambda tensors, header: tensors.update({name: value})


def change(name, value):
    return lambda tensors, header: header.update({name: value})


TAMPERED_INDEX = {
    "no readout": lambda tensors, header: header.pop("readout"),
    "unknown readout": change("readout", "some"),
    "endless steps": change("n_steps", float("inf")),
    "no shards": change("sources", []),
    "shards are a number": change("sources", 3),
    "more shards": lambda tensors, header: header["sources"].append("x"),
    "other rows": lambda tensors, header: tensors["shard_rows"].add_(1),
    "no atoms": lambda tensors, header: tensors.pop("atom_of_witness"),
    "atoms of fractions": lambda tensors, header: tensors.update(atom_of_witness=tensors["atom_of_witness"] + 0.5),
    "atoms out of range": lambda tensors, header: tensors["atom_of_witness"].add_(10**6),
    "negative columns": lambda tensors, header: tensors["witness_of_atom"].sub_(10**6),
    "columns of other atoms": lambda tensors, header: tensors.update(
        witness_of_atom=tensors["witness_of_atom"].flip(0)
    ),
}

TAMPERED_SHARD = {
    "no source": lambda tensors, header: header.pop("source"),
    "rows of text": change("n_rows", "64"),
    "other rows": change("n_rows", 10**9),
    "no spikes": lambda tensors, header: tensors.pop("patterns"),
    "spikes of other type": lambda tensors, header: tensors.update(patterns=tensors["patterns"].to(torch.int64)),
    "spikes of other shape": put("patterns", torch.zeros(3, 5, dtype=torch.uint8)),
    "fewer spikes": lambda tensors, header: tensors.update(patterns=tensors["patterns"][:1]),
    "atoms out of range": lambda tensors, header: tensors["atom_of_witness"].add_(10**6),
    "targets of other length": lambda tensors, header: tensors.update(targets=tensors["targets"][1:]),
    "targets of other shape": lambda tensors, header: tensors.update(targets=tensors["targets"][:, None]),
    "targets of other type": lambda tensors, header: tensors.update(targets=tensors["targets"].bool()),
    "lengths beyond the end": lambda tensors, header: tensors["lengths"].add_(10**6),
    "no lengths": lambda tensors, header: tensors.pop("lengths"),
}


@pytest.mark.parametrize(
    ("file", "case"),
    [("dictionary", case) for case in TAMPERED_INDEX] + [("shard-000001", case) for case in TAMPERED_SHARD],
)
def test_files_that_were_altered_with_their_checksum_are_refused_or_made_again(tmp_path, witnesses, data, file, case):
    written, _ = stream_dictionary(witnesses, batches(data), tmp_path, "mean", shard_rows=64)
    expected = written.columns()
    path = tmp_path / f"{file}.safetensors"
    kind, tampered = (
        ("sharded dictionary", TAMPERED_INDEX) if file == "dictionary" else ("dictionary shard", TAMPERED_SHARD)
    )
    tensors, header = storage.read_tensors(path, kind)
    tampered[case](tensors, header)
    storage.write_tensors(path, kind, tensors, header)
    with pytest.raises(DataFileError, match=f"expected .* {tmp_path}") as error:
        open_dictionary(tmp_path)
    assert_one_sentence(error.value)
    if "targets" not in case and case != "no source":
        again, _ = stream_dictionary(witnesses, batches(data), tmp_path, "mean", shard_rows=64)
        assert torch.equal(again.columns(), expected)
        assert torch.equal(open_dictionary(tmp_path)[0].columns(), expected)
