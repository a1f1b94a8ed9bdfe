from exchange.readout.strangers import (
    Looped,
    draw_data,
    draw_static,
)

from cvxsnn import reconstruct_readout


def test_a_result_prints_as_a_table():
    (inputs, classes), model = draw_data(), Looped()
    text = str(reconstruct_readout(model, inputs, classes))
    for part in ("layer 'out'", "before", "after", "loss", "accuracy of the layer", "weights", "neurons read"):
        assert part in text
    real = str(reconstruct_readout(draw_static(1), inputs[:, 0], inputs[:, 0, 0]))
    assert " -" in real
